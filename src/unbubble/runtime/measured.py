"""Measured: what the ranks of a run recorded, as Timelines.

Ranks on one machine share a clock; those of several are aligned by causality, over all steps.
"""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import msgspec

from unbubble.action import parse
from unbubble.runtime.gradients import Gradients
from unbubble.schedule import Placement, Schedule
from unbubble.simulate import Timeline
from unbubble.trace.assembly import NO_RECOMPUTE
from unbubble.trace.clocks import align
from unbubble.trace.observed import NS
from unbubble.trace.pairing import pairs, transfer_orders
from unbubble.trace.recorded import Columns, Recorded
from unbubble.trace.recording import dump_recording
from unbubble.trace.timeline import timeline_of


class RankRecord(msgspec.Struct, kw_only=True):
    """What one rank recorded of one pipeline: its lowered order, of each step the times of the
    actions and the optimizer's, in ns; the loss where the last stage is, None where it is no
    number."""

    actions: list[str] = msgspec.field(default_factory=list)
    steps: list[Columns] = msgspec.field(default_factory=list)
    optimizer: list[int] = msgspec.field(default_factory=list)
    losses: list[float | None] = msgspec.field(default_factory=list)


class PipelineResult(msgspec.Struct, kw_only=True):
    """All ranks' records of one pipeline, and its gradients where they were compared."""

    ranks: list[RankRecord]
    gradients: Gradients | None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A finished run: one measured Timeline a step, losses, gradients (None: not compared).

    `clock_uncertainty_s` is by how much the ranks' clocks may still differ, 0 on one machine and
    None where nothing tells.
    """

    steps: tuple[Timeline, ...]
    optimizer_s: tuple[float, ...]
    losses: tuple[float | None, ...]
    gradients: Gradients | None
    clock_uncertainty_s: float | None = 0.0

    @property
    def step_times_s(self) -> tuple[float, ...]:
        """Makespan of every step."""
        return tuple(step.in_unit(step.makespan) for step in self.steps)

    def save(self, path: str | Path) -> None:
        """As a recording, with what it leaves open."""
        uncertainty = self.clock_uncertainty_s
        dump_recording(
            path,
            self.steps,
            clock_uncertainty_ns=None if uncertainty is None else round(uncertainty * NS),
            unknown=[str(NO_RECOMPUTE)],
        )


def measured(result: PipelineResult, placement: Placement, name: str) -> Measured:
    """The Timelines of what was recorded."""
    records = result.ranks
    orders = [Recorded(map(parse, record.actions)) for record in records]
    schedule = Schedule.of([order.actions for order in orders], placement, name=name)
    seen, paired = [], []
    for step in zip(*(record.steps for record in records), strict=True):
        rows = [order.seen(columns) for order, columns in zip(orders, step, strict=True)]
        ends = zip(orders, rows, step, strict=True)
        seen.append(rows)
        paired.append(pairs([order.halves(row, columns) for order, row, columns in ends]))
    befores = chain.from_iterable(map(transfer_orders, paired))
    clocks = align(len(records), befores, same_clock=True)
    uncertainty = clocks.uncertainty
    optimizer = zip(*(record.optimizer for record in records), strict=True)
    return Measured(
        steps=tuple(
            timeline_of(schedule, rows, found, clocks)
            for rows, found in zip(seen, paired, strict=True)
        ),
        optimizer_s=tuple(max(times) / NS for times in optimizer),
        losses=tuple(loss for record in records for loss in record.losses),
        gradients=result.gradients,
        clock_uncertainty_s=None if uncertainty is None else uncertainty / NS,
    )
