"""Hypothesis strategies: placements, orders that can run, any order at all, and costs for them."""

from fractions import Fraction

from hypothesis import strategies as st

from unbubble.action import Action, Kind, overlap
from unbubble.costs import CHANNELS, Costs, Duration, Edge, StageCosts, Tail
from unbubble.schedule import Placement, Schedule
from unbubble.schedule.lowering import RECEIVES, lower
from unbubble.simulate.tail import with_tail


@st.composite
def placements(draw, max_ranks=4, max_stages=6):
    """Every rank holds a stage; one or two copies of the model."""
    ranks = draw(st.integers(1, max_ranks))
    copies = draw(st.sampled_from([1, 1, 2]))
    each = draw(st.integers(-(-ranks // copies), max(max_stages // copies, ranks)))
    rank_of = list(range(ranks)) + draw(
        st.lists(
            st.integers(0, ranks - 1),
            min_size=copies * each - ranks,
            max_size=copies * each - ranks,
        )
    )
    return Placement(tuple(draw(st.permutations(rank_of))), copies)


@st.composite
def orders(draw, max_microbatches=4):
    """A compute-only schedule that can run: one runnable action after another, at random."""
    place = draw(placements())
    split = draw(st.sampled_from(["full", "split", "mixed"]))
    pairs = draw(st.booleans())
    rows = [[] for _ in range(place.ranks)]
    steps = []
    for microbatch in range(draw(st.integers(1, max_microbatches))):
        copy = draw(st.integers(0, place.copies - 1)) * place.num_stages
        stages = range(copy, copy + place.num_stages)
        way = [[Action(Kind.F, s, microbatch)] for s in stages]
        for s in reversed(stages):
            halves = split == "split" or (split == "mixed" and draw(st.booleans()))
            kinds = (Kind.I, Kind.W) if halves else (Kind.B,)
            way.append([Action(k, s, microbatch) for k in kinds])
        steps.append(way)
    ready_weights = []
    while any(steps) or ready_weights:
        options = [i for i, way in enumerate(steps) if way] + [-1] * bool(ready_weights)
        pick = draw(st.sampled_from(options))
        if pick < 0:
            action = ready_weights.pop(draw(st.integers(0, len(ready_weights) - 1)))
            rows[place.rank_of[action.stage]].append(action)
            continue
        action, *later = steps[pick].pop(0)
        ready_weights += later
        rank = place.rank_of[action.stage]
        if pairs and action.kind is Kind.F:
            partners = [
                i for i in range(len(steps)) if i != pick and steps[i]
                and steps[i][0][0].kind is not Kind.F
                and place.rank_of[steps[i][0][0].stage] == rank
            ]  # fmt: skip
            if partners and draw(st.booleans()):
                backward, *later = steps[draw(st.sampled_from(partners))].pop(0)
                ready_weights += later
                action = overlap(action, backward)
        rows[rank].append(action)
    return Schedule.of(rows, place)


@st.composite
def shuffled(draw, schedules):
    """A schedule with some of its actions moved: it may wait for ever."""
    schedule = draw(schedules)
    rows = [list(schedule.actions(rank)) for rank in range(schedule.ranks)]
    for _ in range(draw(st.integers(1, 4))):
        row = rows[draw(st.integers(0, len(rows) - 1))]
        if row:
            action = row.pop(draw(st.integers(0, len(row) - 1)))
            row.insert(draw(st.integers(0, len(row))), action)
    return Schedule.of(rows, schedule.placement)


@st.composite
def durations(draw, most=9):
    return Duration(
        draw(st.integers(0, most)), *draw(st.sampled_from([(0, 0), (2, 0), (0, 1), (1, 3)]))
    )


@st.composite
def costs_for(draw, schedule, *, channels=CHANNELS, overlaps=(True, True, False), tails=True):
    """Costs of every kind for a schedule."""
    place = schedule.placement
    stages = []
    for _ in range(place.num_stages):
        stages.append(
            StageCosts(
                forward=draw(durations()),
                backward_input=draw(durations()),
                backward_weight=draw(durations()),
                backward=draw(st.none() | durations()),
                overlapped=draw(st.none() | durations()),
                recompute=Duration(draw(st.sampled_from([0, 0, 3]))),
                recompute_weight=Duration(draw(st.sampled_from([0, 0, 2]))),
                output_bytes=draw(st.integers(0, 5)),
            )
        )
    edges = st.builds(Edge, st.integers(0, 6), st.sampled_from([Fraction(0), Fraction(2, 3)]))
    ranks = st.integers(0, place.ranks - 1)
    small = st.sampled_from([0, 0, 1, 2])
    tail = Tail()
    if tails and draw(st.booleans()):
        tail = Tail(
            reduce=draw(st.integers(0, 12)),
            clip=draw(st.integers(0, 3)),
            optimizer=draw(st.integers(0, 4)),
            overlap_reduce=draw(st.booleans()),
        )
    return Costs(
        stages=tuple(stages),
        edge=draw(edges),
        edges=draw(st.dictionaries(st.tuples(ranks, ranks), edges, max_size=2)),
        send_host=draw(small),
        recv_host=draw(small),
        action_overhead=draw(small),
        overlap=draw(st.sampled_from(overlaps)),
        channel=draw(st.sampled_from(channels)),
        tail=tail,
        speed=draw(st.dictionaries(ranks, st.sampled_from([Fraction(3, 2), Fraction(1, 3)]))),
    )


@st.composite
def lowered(draw, schedules):
    """A schedule with sends and receives; sometimes with receives posted elsewhere."""
    schedule = lower(draw(schedules), draw(st.sampled_from(RECEIVES)))
    if draw(st.booleans()):
        return schedule
    rows = [list(schedule.actions(rank)) for rank in range(schedule.ranks)]
    for row in rows:
        for action in [a for a in row if a.kind in (Kind.RECV_F, Kind.RECV_B)]:
            if draw(st.booleans()):
                row.remove(action)
                row.insert(draw(st.integers(0, len(row))), action)
    return Schedule.of(rows, schedule.placement)


@st.composite
def cases(draw, schedules, **kinds):
    """A schedule, its tail included, and costs for it."""
    schedule = draw(schedules)
    costs = draw(costs_for(schedule, **kinds))
    return with_tail(schedule, costs), costs
