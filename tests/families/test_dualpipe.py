"""DualPipe and DualPipe-V: the published bubble, memory, pairs and rules."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.families.peaks import peaks

from unbubble.action import Kind
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.simulate import simulate

TIME = st.integers(1, 12)


def idle(schedule, F, I, W, both):
    """Idle ticks of each rank for times of one stage."""
    stages = schedule.num_stages // schedule.ranks
    costs = Costs.uniform(
        schedule.placement,
        forward=F * stages,
        backward_input=I * stages,
        backward_weight=W * stages,
        overlapped=both * stages,
    )
    return set(simulate(schedule, costs).idle)


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("more", [0, 1, 7])
def test_dualpipe_v_idles_for_two_units_a_hop_where_the_pair_is_atomic(p, more):
    assert idle(generate("dualpipe-v", p, 2 * p + more), 1, 1, 1, 3) == {2 * (p - 1)}


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.integers(0, 8), TIME, TIME)
def test_the_published_bubble(depth, more, F, W):
    """(PP/2−1)(F&B+B−3W), exact where W ≤ I = F and the pair takes F + B."""
    W = min(F, W)
    I, B, both = F, F + W, F + F + W
    expected = (depth - 1) * (both + B - 3 * W)
    stages = 2 * depth
    assert idle(generate("dualpipe", stages, 2 * stages + 2 * more), F, I, W, both) == {expected}
    assert idle(generate("dualpipe-v", depth, stages + more), F, I, W, both) == {expected}


def test_the_published_figure_of_eight_ranks_and_twenty_microbatches():
    """It is drawn with F = 1, B = 2 and the pair 3."""
    schedule = generate("dualpipe", 8, 20)
    timeline = simulate(schedule, Costs.uniform(schedule.placement, forward=1, overlapped=3))
    assert timeline.makespan == 66
    assert set(timeline.idle) == {6}


def test_a_shorter_pair_shortens_the_step():
    schedule = generate("dualpipe-v", 4, 16)
    step = [
        simulate(schedule, Costs.uniform(schedule.placement, overlapped=both)).makespan
        for both in (3, 2)
    ]
    assert step[1] < step[0]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(0, 8))
def test_microbatches_in_flight(depth, more):
    stages = 2 * depth
    down = peaks(generate("dualpipe", stages, 2 * stages + 2 * more))
    assert down == [stages + 1] * stages
    assert max(peaks(generate("dualpipe-v", depth, stages + more))) * 2 == stages + 1


@pytest.mark.parametrize(("name", "p", "m"), [("dualpipe", 8, 20), ("dualpipe-v", 4, 11)])
def test_a_pair_is_a_forward_of_one_stream_and_a_full_backward_of_the_other(name, p, m):
    schedule = generate(name, p, m)
    pairs = [a.pair for rank in range(p) for a in schedule.actions(rank) if a.pair]
    assert len(pairs) > p
    for forward, backward in pairs:
        assert (forward.kind, backward.kind) == (Kind.F, Kind.B)
        assert forward.stage != backward.stage


def test_a_microbatch_stays_in_one_copy():
    schedule = generate("dualpipe", 4, 8)
    copies = {}
    for rank in range(4):
        for action in schedule.actions(rank):
            for part in action.parts:
                copies.setdefault(part.microbatch, set()).add(part.stage // 4)
    assert copies == {i: {0} if i < 4 else {1} for i in range(8)}


@pytest.mark.parametrize(("p", "m"), [(2, 4), (6, 14)])
def test_opposite_ranks_do_the_same_on_opposite_copies(p, m):
    schedule = generate("dualpipe", p, m)
    rows = [
        [[(part.kind, part.stage, part.microbatch) for part in action.parts] for action in actions]
        for actions in map(schedule.actions, range(p))
    ]
    for rank, row in enumerate(rows):
        mirrored = [
            [(kind, (stage + p) % (2 * p), (i + m // 2) % m) for kind, stage, i in parts]
            for parts in rows[p - 1 - rank]
        ]
        assert row == mirrored


@pytest.mark.parametrize(
    ("name", "p", "m", "words"),
    [
        ("dualpipe", 3, 12, ["p is even", "nearest p that work: 2 or 4"]),
        ("dualpipe", 4, 9, ["m is even", "nearest m that work: 8 or 10"]),
        ("dualpipe", 4, 6, ["at least 2p = 8", "nearest m that work: 8"]),
        ("dualpipe-v", 4, 7, ["at least the 2p = 8 stages", "nearest m that work: 8"]),
        ("DualPipeV", 4, 1, ["nearest m that work: 8"]),
    ],
)
def test_refusals_name_the_rule_and_what_works(name, p, m, words):
    with pytest.raises(InputError) as error:
        generate(name, p, m)
    assert [word for word in words if word not in str(error.value)] == []


def test_the_rank_holds_both_streams():
    assert generate("dualpipe", 4, 8).placement.rank_of == (0, 1, 2, 3, 3, 2, 1, 0)
    assert generate("dualpipe", 4, 8).placement.copies == 2
    assert generate("dualpipe-v", 4, 8).placement.rank_of == (0, 1, 2, 3, 3, 2, 1, 0)
    assert generate("dualpipe-v", 4, 8).placement.copies == 1
