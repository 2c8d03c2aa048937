"""The figures that a timeline is judged by, under the names of the JSON contract."""

from fractions import Fraction
from typing import Any

from unbubble.costs import Costs
from unbubble.formulas import imbalance_factor, utilization_first_order
from unbubble.held import held_bytes
from unbubble.simulate import Timeline
from unbubble.simulate.loads import rank_loads
from unbubble.simulate.memory import activations
from unbubble.steady import step_time


def figures(timeline: Timeline, costs: Costs) -> dict[str, Any]:
    """Every figure of one step; times in the unit of the costs.

    The step of a pipeline without a flush is that of its steady state, and `fill_and_drain` what
    the simulated piece of it takes beyond that.
    """
    schedule, loads = timeline.schedule, rank_loads(timeline, costs)
    virtual = max(len(schedule.placement.stages_of(rank)) for rank in range(schedule.ranks))
    held = held_bytes(timeline, costs)
    ticks, step = costs.ticks_per_unit, step_time(timeline, costs)
    makespan, span, work = Fraction(timeline.makespan), Fraction(timeline.span), sum(timeline.work)
    first_order = utilization_first_order(
        loads, schedule.microbatches, virtual // schedule.placement.copies
    )
    beyond: dict[str, Fraction] = {}
    if not schedule.flush:
        makespan = span = step
        first_order = 1 / imbalance_factor(loads)
        beyond["fill_and_drain"] = (timeline.makespan - step) / ticks
    idle = timeline.ranks * makespan - work
    bubble = idle / (timeline.ranks * makespan) if makespan else Fraction(0)
    return {
        "schedule": schedule.name or "custom",
        "ranks": schedule.ranks,
        "microbatches": schedule.microbatches,
        "virtual_stages": virtual // schedule.placement.copies,
        "num_stages": schedule.num_stages,
        "makespan": makespan / ticks,
        "span": span / ticks,
        "step": step / ticks,
        **beyond,
        "work": [Fraction(work, ticks) for work in timeline.work],
        "idle": [(makespan - busy) / ticks for busy in timeline.work],
        "bubble_fraction": bubble,
        "bubble_fraction_span": 1 - max(timeline.work) / span if span else Fraction(0),
        "bubble_overhead": idle / work if work else Fraction(0),
        "utilization": 1 - bubble,
        "imbalance_factor": imbalance_factor(loads),
        "utilization_first_order": first_order,
        "peak_activations": [curve.peak for curve in activations(timeline, costs)],
        "weight_bytes": held.weights if held else None,
        "peak_bytes": held.peak if held else None,
        "notes": _notes(timeline, costs),
        "unit": timeline.unit,
    }


def _notes(timeline: Timeline, costs: Costs) -> list[str]:
    """What the costs leave open that this schedule is about."""
    notes = []
    once = any(row.recompute.total and not row.recompute_weight.total for row in costs.stages)
    if once and timeline.schedule.splits_backward:
        notes.append(
            "recompute is counted once, in I; where the runtime runs the forward again for W, as "
            "PyTorch does, backward_weight must hold that, or recompute_weight say it"
        )
    tail = costs.tail
    if (tail.reduce or tail.clip or tail.optimizer) and not timeline.schedule.flush:
        notes.append(
            "the tail of the costs ends a step with a flush and is in no step here; without a "
            "flush weights are updated after every backward, whose time must hold that"
        )
    return notes
