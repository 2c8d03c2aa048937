"""Comparison: a measured step beside the plan that it ran."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from unbubble.action import JOINED, unpack
from unbubble.attribution import CLASSES, Attribution, attribute
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.plan import Plan
from unbubble.prediction import predict
from unbubble.schedule import Schedule
from unbubble.schedule.lowering import compute_only
from unbubble.schedule.order import picked, without_comms
from unbubble.simulate import Timeline
from unbubble.trace.costs import usual

Json = dict[str, Any]


@dataclass(frozen=True)
class Planned:
    """A plan and what it predicts, which is the same for all pipelines of a job."""

    plan: Plan

    @cached_property
    def order(self) -> Schedule:
        return compute_only(self.plan.schedule)

    @cached_property
    def step(self) -> Timeline:
        return predict(self.plan.schedule, self.plan.costs)

    def classes(self, measured: Timeline) -> Attribution:
        """Those of the predicted step, in the form in which the measured one has its own."""
        return self._classes if measured.schedule.with_comms else self._as_traced

    @cached_property
    def _classes(self) -> Attribution:
        return attribute(self.step, self.plan.costs)

    @cached_property
    def _as_traced(self) -> Attribution:
        """Traces have no posts of transfers among the actions: what these take of their ranks, and
        that one is late, is overhead; among the actions they let the transfer come later."""
        return attribute(_without_posts(self.step))


def against(planned: Planned, timeline: Timeline, measured: Attribution) -> tuple[Json, list[str]]:
    """What differs: the order, the step (mean of the ranks' classes, measured less predicted), the
    times of the stages; and what cannot be told."""
    ran, costs = compute_only(timeline.schedule), planned.plan.costs
    sizes = [f"{one.ranks} ranks with {one.num_stages} stages" for one in (planned.order, ran)]
    if sizes[0] != sizes[1]:
        reason = f"plan: it is of {sizes[0]} and the step of {sizes[1]}, so nothing is compared"
        return {"order_differences": []}, [reason]
    differences = _order_differences(planned.order, ran)
    if costs.unit != "s":
        reason = "predicted step: the plan's costs are in a unit that is not seconds"
        return {"order_differences": differences}, [reason]
    predicted, expected = planned.step, planned.classes(timeline)
    answer: Json = {"order_differences": differences}
    rows = {}
    for name in CLASSES:
        own = [measured.in_unit(getattr(r, name)) for r in measured.ranks]
        other = [expected.in_unit(getattr(r, name)) for r in expected.ranks]
        rows[f"{name}_s"] = sum(own) / len(own) - sum(other) / len(other)
    answer["difference"] = rows
    answer["stages"] = _stage_ratios(costs, timeline)
    answer["predicted_s"] = predicted.in_unit(predicted.length)
    step_s = timeline.in_unit(timeline.length)
    answer["error"] = answer["predicted_s"] / step_s - 1 if step_s else None
    return answer, []


def _without_posts(step: Timeline) -> Timeline:
    """The same step, its sends and receives no actions."""
    kept = without_comms(step.schedule.codes)
    return replace(
        step,
        schedule=replace(step.schedule, codes=picked(step.schedule.codes, kept)),
        starts=picked(step.starts, kept),
        ends=picked(step.ends, kept),
        communication=step.communication and picked(step.communication, kept),
        overhead=step.overhead and picked(step.overhead, kept),
        recompute=step.recompute and picked(step.recompute, kept),
    )


def _order_differences(planned: Schedule, ran: Schedule) -> list[Json]:
    """Where each rank's order first differs."""
    found = []
    for rank, rows in enumerate(zip(planned.codes, ran.codes, strict=True)):
        if rows[0] == rows[1]:
            continue
        both = zip(*rows, strict=False)
        i = next((i for i, (a, b) in enumerate(both) if a != b), min(map(len, rows)))
        at = [str(unpack(row[i] & ~JOINED)) if i < len(row) else None for row in rows]
        found.append({"rank": rank, "position": i, "planned": at[0], "ran": at[1]})
    return found


def _stage_ratios(costs: Costs, timeline: Timeline) -> list[Json]:
    """Measured over planned time, by stage and kind."""
    found = []
    for u in usual([timeline]):
        stage = costs.stages[u.stage % timeline.schedule.num_stages]
        try:
            planned = stage.of(u.kind) if u.kind.name in "FBIW" else stage.overlapped
        except InputError:
            planned = None
        if planned is None or planned.total == 0:
            continue
        planned_s = costs.in_unit(planned.total)
        measured_s = timeline.in_unit(u.median)
        found.append({"stage": u.stage, "kind": u.kind.name, "planned_s": planned_s,
                      "measured_s": measured_s, "ratio": measured_s / planned_s})  # fmt: skip
    return found
