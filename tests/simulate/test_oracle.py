"""The kernel against a slow and obviously right simulator, and against itself uncompiled."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import simulator as oracle
from tests.strategies_costs import cases, costs_for, lowered, orders, shuffled
from tests.uncompiled import uncompiled

from unbubble.schedule.lowering import RECEIVES, lower
from unbubble.simulate import Deadlock, kernel, program, simulate, simulation, timeline

LOWERED = lowered(orders())
CASES = st.one_of(
    cases(orders(), channels=["unlimited"], overlaps=[True]),
    cases(shuffled(orders()), channels=["unlimited"], overlaps=[True]),
    cases(LOWERED),
    cases(shuffled(LOWERED)),
)
"""Other channels need sends and receives."""


def run(schedule, costs, **options):
    """Everything that a simulation says, or where it is stuck."""
    try:
        found = simulate(schedule, costs, **options)
    except Deadlock as deadlock:
        return deadlock.blocked
    times = [
        (event.action, event.start, event.end)
        for rank in range(found.ranks)
        for event in found.events(rank)
    ]
    wires = {t.action[:3]: (t.start, t.end) for t in found.transfers}
    return times, wires, found.begin, found.finish, found.work


@given(CASES)
@settings(max_examples=200, deadline=None)
def test_the_kernel_agrees_with_the_oracle(case):
    schedule, costs = case
    actions = [list(schedule.actions(rank)) for rank in range(schedule.ranks)]
    found = run(schedule, costs)
    try:
        times, wires = oracle.simulate(schedule, costs)
    except oracle.StuckError as stuck:
        (ranks,) = stuck.args
        assert isinstance(found, tuple)
        assert [(r, _number(schedule, r, i)) for r, i in found] == ranks or not ranks
        return
    assert found[0] == [
        (action, *times[rank, i])
        for rank, row in enumerate(actions)
        for i, action in enumerate(row)
    ]
    assert found[1] == wires
    assert found[2:4] == (min(s for s, _ in times.values()), max(e for _, e in times.values()))


def _number(schedule, rank, position):
    """A position among a rank's codes as the number of the action."""
    ahead = 0
    for number, action in enumerate(schedule.actions(rank)):
        ahead += len(action.codes)
        if position < ahead:
            return number
    raise AssertionError


@given(CASES)
@settings(max_examples=100, deadline=None)
def test_compiled_and_uncompiled_agree(case):
    compiled = run(*case)
    plain = uncompiled(kernel)
    with pytest.MonkeyPatch.context() as patch:
        for module in (program, simulation, timeline):
            patch.setattr(module, "kernel", plain)
        assert run(*case) == compiled


@given(CASES)
@settings(max_examples=100, deadline=None)
def test_the_known_order_gives_the_same_ends(case):
    linked = program.Program(*case)
    stuck = []
    for ask in (linked.run, linked.order):
        try:
            ask()
        except Deadlock as deadlock:
            stuck.append(deadlock.blocked)
    if stuck:
        assert len(stuck) == 2
        assert stuck[0] == stuck[1]
        return
    ends, known = linked.run(), linked.order()
    found = known.run(known.sorted(linked.duration), known.sorted(linked.lag))
    assert [found[v + 1] for v in range(linked.nodes)] == [ends[k] for k in known.order]


@given(orders(), st.sampled_from(RECEIVES), st.data())
@settings(max_examples=50, deadline=None)
def test_a_compute_only_order_is_lowered_for_channels(schedule, receive, data):
    costs = data.draw(costs_for(schedule, channels=["link"], overlaps=[True]))
    assert run(schedule, costs, receive=receive) == run(lower(schedule, receive), costs)
