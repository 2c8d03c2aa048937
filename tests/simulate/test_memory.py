"""What ranks hold, by hand and against the formulas of the families."""

from dataclasses import replace
from fractions import Fraction

import pytest
from tests.report.timelines import timeline_of

from unbubble.costs import Costs
from unbubble.families import generate
from unbubble.schedule import Schedule
from unbubble.simulate import simulate
from unbubble.simulate.memory import activations, memory


def test_a_split_backward_lets_go_in_two_parts():
    timeline = timeline_of(Schedule.of([["0F0", "0F1", "0I0", "0W0", "0B1"]]))
    (curve,) = activations(timeline)
    assert list(curve.ticks) == [0, 1, 3, 4, 6]
    assert [Fraction(v, curve.scale) for v in curve.values] == [1, 2, Fraction(3, 2), 1, 0]


def test_a_pair_holds_both_of_its_parts_to_its_end():
    timeline = timeline_of(Schedule.of([["0F0", "(0F1;0B0)OVERLAP_F_B", "0B1"]]), overlapped=2)
    (curve,) = activations(timeline)
    assert [Fraction(v, curve.scale) for v in curve.values] == [1, 2, 1, 0]


def test_bytes_are_those_of_the_costs_and_weights_stay():
    schedule = Schedule.of([["0F0", "1F0", "1I0", "1W0", "0B0"]])
    costs = Costs.uniform(schedule.placement)
    stages = tuple(
        replace(
            row, held_until_input_bytes=30 * (i + 1), held_until_weight_bytes=7, weight_bytes=100
        )
        for i, row in enumerate(costs.stages)
    )
    (curve,) = memory(simulate(schedule, costs := replace(costs, stages=stages)), costs)
    assert curve.values == [237, 304, 244, 237, 200]
    assert (curve.base, curve.peak) == (200, 304)
    (shares,) = activations(simulate(schedule, costs), costs)
    assert shares.peak == 1


@pytest.mark.parametrize(
    ("name", "virtual", "peaks"),
    [("gpipe", None, [9, 9, 9, 9]), ("1f1b", None, [4, 3, 2, 1])],
)
def test_peaks_of_the_textbook(name, virtual, peaks):
    timeline = timeline_of(generate(name, 4, 9, virtual), backward=2)
    assert [curve.peak for curve in activations(timeline)] == peaks


def test_everything_is_let_go_at_the_end():
    for curve in activations(timeline_of(generate("dualpipe", 4, 10), p2p=1)):
        assert curve.values[-1] == 0
        assert min(curve.values) >= 0
