"""The five classes: they add up exactly, and each cause lands in its own class."""

from array import array
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle.attribution import ladder
from tests.strategies_costs import cases, lowered, orders

from unbubble.action import JOINED
from unbubble.attribution import attribute, attribute_together
from unbubble.costs import Costs, Duration, Edge, StageCosts
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.schedule import Schedule
from unbubble.simulate import Deadlock, Timeline, simulate


def stage(forward, backward, **more):
    return StageCosts(forward=Duration(*forward), backward=Duration(*backward), **more)


def classes(attribution):
    for row in attribution.ranks:
        assert sum(row[1:7]) == row.total
        yield row


def test_equal_stages_have_nothing_but_a_bubble():
    order = generate("gpipe", 4, 8)
    timeline = simulate(order, Costs.uniform(order.placement, forward=10, backward=20))
    attribution = attribute(timeline)
    assert attribution.gains == (0, 0, 0, 0)
    for row in classes(attribution):
        assert (row.compute, row.bubble) == (240, 90)  # (p−1)(F+B)
        assert row.imbalance_static == row.imbalance_jitter == 0


def test_a_slow_stage_is_static_imbalance_and_its_rank_waits_less():
    order = generate("gpipe", 4, 8)
    costs = Costs.uniform(order.placement, forward=[10, 10, 18, 10], backward=20)
    attribution = attribute(simulate(order, costs))
    assert attribution.gains.imbalance_static > 0
    assert attribution.gains[1:] == (0, 0, 0)
    rows = list(classes(attribution))
    assert rows[2].imbalance_static < 0 < rows[0].imbalance_static


def test_late_actions_are_jitter():
    order = generate("gpipe", 2, 4)
    costs = Costs.uniform(order.placement, forward=10, backward=20)
    durations = [array("q", [10] * 4 + [20] * 4), array("q", [10] * 4 + [20] * 4)]
    durations[0][0] += 7  # the first forward below, the last forward above: one after the other
    durations[1][3] += 7
    attribution = attribute(simulate(order, costs, durations=durations))
    assert attribution.ladder[2:] == (164,) * 3
    assert attribution.gains.imbalance_static == 0
    assert attribution.gains.imbalance_jitter == 164 - Fraction(11 * 4 + 3, 4) * 5 - 80 - 20
    assert all(row.compute == 127 for row in classes(attribution))


def test_transfers_and_parts_land_in_their_classes():
    order = generate("gpipe", 3, 4)
    costs = Costs(
        stages=(stage((8, 2, 1), (20, 3, 1), recompute=Duration(5)),) * 3, edge=Edge(latency=4)
    )
    timeline = simulate(order, costs)
    attribution = attribute(timeline)
    assert len(timeline.transfers) == 16
    for row in classes(attribution):
        assert row.compute == 4 * (8 + 20 + 5)
        assert row.recompute == 20
        assert row.communication == (3 + 4 - 1) * 5 + 4 * 4  # the longest path's parts and hops
        assert row.overhead == 6 * 2


def test_a_measured_timeline_puts_what_nothing_explains_into_overhead():
    order = Schedule.of([["0F0", "0B0"], ["1F0", "1B0"]])
    timeline = Timeline(
        schedule=order,
        starts=(array("q", [100, 180]), array("q", [125, 150])),
        ends=(array("q", [120, 200]), array("q", [145, 170])),
        begin=98,
        finish=210,
        measured=True,
    )
    attribution = attribute(timeline)
    assert attribution.ladder == (80, 80, 80, 80, 112)
    for row in classes(attribution):
        assert (row.compute, row.bubble, row.overhead, row.total) == (40, 40, 32, 112)


@pytest.mark.parametrize("microbatches", [1, 3, 7])
def test_means_that_are_no_whole_ticks_stay_exact(microbatches):
    order = generate("gpipe", 3, microbatches)
    costs = Costs.uniform(order.placement, forward=[7, 11, 13], backward=[3, 5, 1])
    durations = [
        array("q", [1 + (7 * r + 5 * i) % 11 for i in range(2 * microbatches)]) for r in range(3)
    ]
    attribution = attribute(simulate(order, costs, durations=durations))
    assert [row.compute for row in classes(attribution)] == [sum(d) for d in durations]
    assert attribution.ladder.ideal >= Fraction(sum(map(sum, durations)), 3)


@given(cases(st.one_of(orders(), lowered(orders()))), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_ladder_is_that_of_the_slow_one_and_nothing_remains(case, random):
    try:
        simulated = simulate(*case)
    except Deadlock:
        return
    costs = case[1]
    for timeline in (simulated, disturbed(simulated, random)):
        attribution = attribute(timeline, costs)
        expected = ladder(timeline, costs)
        assert attribution.ladder[1:] == expected[1:]
        # scaled means without a common denominator that fits are rounded to one that does
        assert abs(attribution.ladder.ideal - expected[0]) < Fraction(1, 1_000_000)
        for row in classes(attribution):
            assert row.total == timeline.finish - timeline.begin


def disturbed(timeline, random):
    """As if measured: every action, and all that follows, takes longer or shorter than planned."""
    moved = [{"starts": [], "ends": []} for _ in range(timeline.ranks)]
    for rank, row in enumerate(moved):
        late = 0
        codes, starts, ends = (
            t[rank] for t in (timeline.schedule.codes, timeline.starts, timeline.ends)
        )
        times = zip(codes, starts, ends, strict=True)
        for code, start, end in times:
            start += late
            if not code & JOINED:
                late += random.randrange(4)
            row["starts"].append(start)
            row["ends"].append(end + late)
    ends = [array("q", row["ends"]) for row in moved]
    return replace(
        timeline,
        starts=tuple(array("q", row["starts"]) for row in moved),
        ends=tuple(ends),
        begin=timeline.begin - 1,
        finish=max(map(max, filter(None, ends))) + 2,
        measured=True,
    )


@given(cases(st.one_of(orders(), lowered(orders()))))
@settings(max_examples=60, deadline=None)
def test_a_simulation_without_overhead_is_explained_in_full(case):
    schedule, costs = case
    free = lambda d: d and d._replace(overhead=0)  # noqa: E731
    stages = [
        replace(
            stage,
            forward=free(stage.forward), backward=free(stage.backward),
            backward_input=free(stage.backward_input), overlapped=free(stage.overlapped),
            backward_weight=free(stage.backward_weight),
        )
        for stage in costs.stages
    ]  # fmt: skip
    costs = replace(costs, stages=tuple(stages), action_overhead=0, send_host=0, recv_host=0)
    try:
        timeline = simulate(schedule, costs)
    except Deadlock:
        return
    assert attribute(timeline, costs).gains.overhead == 0


def test_a_pipeline_without_a_flush_is_looked_at_in_its_steady_state():
    order = generate("pipedream", 4, 40)
    costs = Costs.uniform(order.placement, forward=[10, 10, 13, 10], backward=20)
    attribution = attribute(simulate(order, costs))
    assert attribution.ladder.measured == attribution.microbatches * 33
    for row in classes(attribution):
        assert row.compute == attribution.microbatches * (33 if row.rank == 2 else 30)
        assert row.bubble == 0
    with pytest.raises(InputError, match="at least 10"):
        attribute(simulate(short := generate("pipedream", 4, 9), Costs.uniform(short.placement)))


def test_parts_that_exceed_their_action_are_refused():
    order = Schedule.of([["0F0", "0B0"]])
    timeline = simulate(order, Costs.uniform(order.placement))
    wrong = replace(timeline, communication=(array("q", [0, 3]),))
    with pytest.raises(InputError, match="0B0 on rank 0 takes 2 ticks, of which 3"):
        attribute(wrong)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=5),
    st.integers(12, 30),
    st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_the_steady_state_has_no_remainder_either(times, microbatches, p2p):
    order = generate("pipedream", len(times), microbatches)
    forward, backward = zip(*times, strict=True)
    costs = Costs.uniform(order.placement, forward=forward, backward=backward, p2p=p2p)
    attribution = attribute(simulate(order, costs))
    slowest = max(f + b for f, b in times)
    for row in classes(attribution):
        assert row.overhead == row.imbalance_jitter == 0
        assert row.compute == attribution.microbatches * sum(times[row.rank])
    assert attribution.ladder.static == attribution.microbatches * slowest


def test_replicas_have_one_ladder():
    """A fast replica's wait for a slow one at the step's end was its overhead."""
    order = generate("1f1b", 2, 4)
    fast, slow = (
        simulate(order, Costs.uniform(order.placement, forward=t, backward=2 * t)) for t in (1, 3)
    )
    both = attribute_together([replace(fast, finish=slow.finish), slow])
    assert [found.ladder for found in both] == [both[0].ladder] * 2
    assert (both[0].ladder.ideal, both[0].ladder.measured) == (30, 45)  # 5 × (F+B), at 6 and at 9
    for found, work in zip(both, (12, 36), strict=True):
        for row in found.ranks:
            assert sum(row[1:7]) == row.total == 45
            assert (row.compute, row.bubble, row.imbalance_static) == (work, 6, 39 - work)
            assert row.imbalance_jitter == row.communication == row.overhead == 0
