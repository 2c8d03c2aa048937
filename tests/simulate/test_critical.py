"""The critical path: by hand, and by what it means."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies_costs import cases, lowered, orders

from unbubble.costs import Costs
from unbubble.families import generate
from unbubble.schedule import Schedule
from unbubble.simulate import Deadlock, simulate
from unbubble.simulate.critical import critical_path


def test_the_path_of_1f1b_by_hand():
    # rank 0  0 1 . . a a . b b
    # rank 1  . 0 a a 1 b b . .
    order = Schedule.of([["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]])
    path = critical_path(order, Costs.uniform(order.placement, backward=2))
    assert [*map(str, path.actions)] == ["0F0", "1F0", "1B0", "1F1", "1B1", "0B1"]
    assert (path.length, path.stage_shares) == (9, (Fraction(3, 9), Fraction(6, 9)))


def test_transfers_are_steps_of_the_path():
    order = Schedule.of([["0F0", "0B0"], ["1F0", "1B0"]])
    path = critical_path(order, Costs.uniform(order.placement, p2p=3))
    shown = [(str(s.action), s.rank, s.start, s.end, s.transfer) for s in path.steps]
    assert shown == [
        ("0F0", 0, 0, 1, False), ("0SEND_F0", 0, 1, 4, True), ("1F0", 1, 4, 5, False),
        ("1B0", 1, 5, 7, False), ("1SEND_B0", 1, 7, 10, True), ("0B0", 0, 10, 12, False),
    ]  # fmt: skip
    assert path.transfer_share == Fraction(1, 2)


def test_the_slowest_stage_has_the_largest_share():
    order = generate("1f1b", 4, 16)
    path = critical_path(order, Costs.uniform(order.placement, forward=[4, 4, 6, 4], backward=8))
    assert max(path.stage_shares) == path.stage_shares[2] > Fraction(3, 4)


@given(st.one_of(cases(orders()), cases(lowered(orders()))))
@settings(max_examples=120, deadline=None)
def test_the_path_is_an_unbroken_chain_of_what_happened(case):
    schedule, costs = case
    try:
        timeline = simulate(schedule, costs)
    except Deadlock:
        return
    steps = critical_path(schedule, costs).steps
    assert steps[0].start == 0
    assert steps[-1].end == timeline.finish
    assert all(a.end == b.start for a, b in pairwise(steps))
    happened = {
        (event.action, rank, event.start, event.end)
        for rank in range(timeline.ranks)
        for event in timeline.events(rank)
    } | {(t.action, t.source, t.start, t.end) for t in timeline.transfers}
    for step in steps:
        if step.action.is_compute or step.transfer:
            assert step[:4] in happened
