"""Actions that took much longer than their kind usually does."""

from array import array
from dataclasses import replace

from unbubble import Costs, Schedule, simulate
from unbubble.trace.costs import usual
from unbubble.trace.stragglers import stragglers

ORDER = Schedule.of([["0F0", "0F1", "0F2", "0B0", "0B1", "0B2"]])


def step_of(*times):
    ends = [sum(times[: i + 1]) for i in range(len(times))]
    starts = [end - time for end, time in zip(ends, times, strict=True)]
    return replace(
        simulate(ORDER, Costs.uniform(ORDER.placement)),
        starts=(array("q", starts),),
        ends=(array("q", ends),),
        finish=ends[-1],
    )


def test_the_one_of_the_largest_excess_comes_first():
    step = step_of(100, 160, 100, 200, 200, 500)
    found = [(str(s.action), s.took, s.usually, s.excess) for s in stragglers(step, usual([step]))]
    assert found == [("0B2", 500, 200, 300), ("0F1", 160, 100, 60)]


def test_what_is_usual_may_be_told_by_other_steps():
    usually, late = step_of(*[100] * 6), step_of(*[300] * 6)
    assert stragglers(late, usual([late])) == []
    assert len(stragglers(late, usual([usually, usually, late]))) == 6


def test_an_action_that_is_nothing_beside_the_step_is_none():
    step = step_of(1, 1, 5, 1000, 1000, 1000)
    assert stragglers(step, usual([step])) == []
