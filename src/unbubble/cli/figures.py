"""The figures that a timeline is judged by, under the names of the JSON contract."""

from fractions import Fraction
from typing import Any

from unbubble.costs import Costs
from unbubble.formulas import imbalance_factor, utilization_first_order
from unbubble.simulate import Timeline
from unbubble.simulate.memory import activations


def figures(timeline: Timeline, costs: Costs) -> dict[str, Any]:
    """Every figure of one step; times in the unit of the costs."""
    schedule, loads = timeline.schedule, rank_loads(timeline)
    virtual = max(len(schedule.placement.stages_of(rank)) for rank in range(schedule.ranks))
    ticks = costs.ticks_per_unit
    return {
        "schedule": schedule.name or "custom",
        "ranks": schedule.ranks,
        "microbatches": schedule.microbatches,
        "virtual_stages": virtual // schedule.placement.copies,
        "num_stages": schedule.num_stages,
        "makespan": Fraction(timeline.makespan, ticks),
        "span": Fraction(timeline.span, ticks),
        "step": Fraction(timeline.finish - timeline.begin, ticks),
        "work": [Fraction(work, ticks) for work in timeline.work],
        "idle": [Fraction(idle, ticks) for idle in timeline.idle],
        "bubble_fraction": timeline.bubble_fraction,
        "bubble_fraction_span": timeline.bubble_fraction_span,
        "bubble_overhead": timeline.bubble_overhead,
        "utilization": timeline.utilization,
        "imbalance_factor": imbalance_factor(loads),
        "utilization_first_order": utilization_first_order(
            loads, schedule.microbatches, virtual // schedule.placement.copies
        ),
        "peak_activations": [curve.peak for curve in activations(timeline, costs)],
        "unit": timeline.unit,
    }


def rank_loads(timeline: Timeline) -> list[Fraction]:
    """The work of one microbatch on every rank, in ticks."""
    return [Fraction(work, timeline.schedule.microbatches) for work in timeline.work]
