"""What ranks hold, by hand and against the formulas of the families."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from tests.report.timelines import timeline_of
from tests.shared import shared
from tests.strategies_costs import cases, orders

from unbubble.action import Kind
from unbubble.costs import Costs
from unbubble.families import generate
from unbubble.formulas import peak_in_flight
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


def peaks_of(schedule, whole):
    timeline = simulate(schedule, Costs.uniform(schedule.placement))
    return [curve.peak for curve in activations(timeline, whole_until_weight=whole)]


@pytest.mark.parametrize(
    ("name", "virtual", "whole"),
    [("gpipe", 1, False), ("looped-bfs", 2, False), ("looped-bfs", 4, False), ("1f1b", 1, False),
     ("naive", 1, False), ("interleaved-1f1b", 2, False), ("interleaved-1f1b", 4, False),
     ("zb-h1", 1, True), ("zb-h2", 1, True), ("zb-v", 2, True), ("dualpipe", 1, True),
     ("dualpipe-v", 2, True)],
)  # fmt: skip
@pytest.mark.parametrize("ranks", [4, 8])
def test_the_fullest_rank_holds_what_the_closed_form_says(name, virtual, whole, ranks):
    microbatches = 1 if name == "naive" else 4 * ranks
    peaks = peaks_of(generate(name, ranks, microbatches, virtual), whole)
    assert max(peaks) == peak_in_flight(name, ranks, microbatches, virtual)
    if name == "1f1b":
        assert peaks == [*range(ranks, 0, -1)]


@pytest.mark.parametrize(
    ("key", "name", "virtual"),
    [("1f1b", "1f1b", 1), ("interleaved v=2", "interleaved-1f1b", 2),
     ("interleaved v=4", "interleaved-1f1b", 4), ("looped-bfs v=2", "looped-bfs", 2),
     ("interleaved-zb", "interleaved-zb", 2), ("zb-v", "zb-v", 2), ("dualpipe-v", "dualpipe-v", 2)],
)  # fmt: skip
def test_published_peaks_with_activations_held_whole(key, name, virtual):
    published = json.loads(shared("reference/fixed_orders.json").read_text())["peak_p8"]
    peaks = peaks_of(generate(name, 8, 32, virtual), True)
    assert max(peaks) == Fraction(str(published[key]))


@given(cases(orders(), channels=["unlimited"], overlaps=[True]))
@settings(max_examples=60, deadline=None)
def test_the_curve_is_what_every_moment_holds(case):
    """A slow count: every stage's activations at each moment, from the events alone."""
    timeline = simulate(*case)
    place = case[0].placement
    for rank, curve in enumerate(activations(timeline)):
        size = Fraction(1, len(place.stages_of(rank)) // place.copies or 1)
        spans = []
        ends = {}
        for event in timeline.events(rank):
            for part in event.action.parts:
                ends[part[:3]] = (event.start, event.end)
        for (kind, stage, microbatch), (start, _) in ends.items():
            if kind is Kind.F:
                key = stage, microbatch
                full = ends.get((Kind.B, *key))
                first = full or ends[Kind.I, *key]
                second = full or ends[Kind.W, *key]
                spans += [(start, first[1]), (start, second[1])]
        for moment, held in dict(zip(curve.ticks, curve.values, strict=True)).items():
            now = size / 2 * sum(a <= moment < b for a, b in spans)
            assert Fraction(held, curve.scale) == now
