"""Measured: what the ranks of a run recorded, as Timelines.

The wait for inputs stands before each action's start. Ranks on one machine share a clock; those of
several are aligned by causality: nothing arrives before it was sent.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import msgspec

from unbubble.action import KIND_MASK, TRANSFER, Action, Kind, pack, unpack
from unbubble.runtime.gradients import Gradients
from unbubble.schedule import Placement, Schedule
from unbubble.simulate import Timeline, Transfer
from unbubble.trace.clocks import Clocks, align

WAITED_NS = 50_000
"""A shorter wait for a receive is the call itself: the data were there."""


class RankSteps(msgspec.Struct, kw_only=True):
    """What one rank recorded of one pipeline: its lowered order, then for each step its begin, of
    each action the end, the wait and the model's time, and the optimizer's time, in ns; the loss
    where the last stage is, None where it is no number."""

    actions: list[str]
    begins: list[int] = msgspec.field(default_factory=list)
    ends: list[list[int]] = msgspec.field(default_factory=list)
    waits: list[list[int]] = msgspec.field(default_factory=list)
    computes: list[list[int]] = msgspec.field(default_factory=list)
    optimizer: list[int] = msgspec.field(default_factory=list)
    losses: list[float | None] = msgspec.field(default_factory=list)


class PipelineResult(msgspec.Struct, kw_only=True):
    """All ranks' records of one pipeline, and its gradients where they were compared."""

    ranks: list[RankSteps]
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


def measured(result: PipelineResult, placement: Placement, name: str) -> Measured:
    """The Timelines of what was recorded."""
    ranks = result.ranks
    order = Schedule.of([r.actions for r in ranks], placement, name=name)
    steps = [
        [_rank_step(record, number) for record in ranks] for number in range(len(ranks[0].begins))
    ]
    links = list(_links(order))
    optimizer = zip(*(record.optimizer for record in ranks), strict=True)
    clocks = _clocks(links, steps)
    uncertainty = clocks.uncertainty
    return Measured(
        steps=tuple(_timeline(order, links, rows, clocks) for rows in steps),
        optimizer_s=tuple(max(times) / 1e9 for times in optimizer),
        losses=tuple(loss for r in ranks for loss in r.losses),
        gradients=result.gradients,
        clock_uncertainty_s=None if uncertainty is None else uncertainty / 1e9,
    )


class _RankStep(NamedTuple):
    """One rank's step, one value a code, in ns of its clock."""

    starts: "array[int]"
    ends: "array[int]"
    waits: "array[int]"
    overheads: "array[int]"


def _rank_step(record: RankSteps, step: int) -> _RankStep:
    found = _RankStep(*(array("q") for _ in range(4)))
    before = record.begins[step]
    columns = zip(
        record.actions, record.waits[step], record.computes[step], record.ends[step], strict=True
    )
    for text, wait, compute, end in columns:
        codes = 2 if text.endswith("OVERLAP_F_B") else 1
        found.starts.extend([before + wait] * codes)
        found.ends.extend([end] * codes)
        found.waits.extend([wait] * codes)
        found.overheads.extend([0] * (codes - 1) + [end - before - wait - compute])
        before = end
    return found


class _Link(NamedTuple):
    """A tensor's way: where its send, its receive and the action that uses it stand, as positions
    in the orders of the two ranks."""

    send: Action
    source: int
    destination: int
    sent: int
    received: int
    used: int


def _links(order: Schedule) -> Iterator[_Link]:
    rank_of = order.placement.rank_of
    place = {
        code: i
        for codes in order.codes
        for i, code in enumerate(codes)
        if code & KIND_MASK in TRANSFER
    }
    for rank, codes in enumerate(order.codes):
        for i, code in enumerate(codes):
            kind, stage, microbatch, _ = unpack(code)
            other = stage - 1 if kind is Kind.F else stage + 1
            if kind > Kind.I or not 0 <= other < len(rank_of) or rank_of[other] == rank:
                continue
            send, receive = (
                (Kind.SEND_F, Kind.RECV_F) if kind is Kind.F else (Kind.SEND_B, Kind.RECV_B)
            )
            yield _Link(
                Action(send, other, microbatch),
                rank_of[other],
                rank,
                place[pack(send, other, microbatch)],
                place[pack(receive, stage, microbatch)],
                i,
            )


def _clocks(links: Sequence[_Link], steps: Sequence[Sequence[_RankStep]]) -> Clocks:
    """Every send begins before what waited for it goes on, or before what used it ends."""
    orders = []
    for rows in steps:
        for link in links:
            source, destination = rows[link.source], rows[link.destination]
            waited = destination.waits[link.used] > WAITED_NS
            later = destination.starts if waited else destination.ends
            orders.append(
                (link.source, source.starts[link.sent], link.destination, later[link.used])
            )
    return align(len(steps[0]), orders, same_clock=True)


def _timeline(
    order: Schedule, links: Sequence[_Link], rows: Sequence[_RankStep], clocks: Clocks
) -> Timeline:
    pairs = zip(rows, clocks.offsets, strict=True)
    zero = min(row.starts[0] - row.waits[0] + offset for row, offset in pairs)
    shifts = [offset - zero for offset in clocks.offsets]
    starts = tuple(_shifted(row.starts, by) for row, by in zip(rows, shifts, strict=True))
    ends = tuple(_shifted(row.ends, by) for row, by in zip(rows, shifts, strict=True))
    return Timeline(
        schedule=order,
        starts=starts,
        ends=ends,
        begin=0,
        finish=max(row[-1] for row in ends),
        overhead=tuple(row.overheads for row in rows),
        transfers=tuple(_transfers(links, starts, ends, [row.waits for row in rows])),
        unit="s",
        ticks_per_unit=10**9,
        measured=True,
    )


def _shifted(times: "array[int]", by: int) -> "array[int]":
    return array("q", (time + by for time in times))


def _transfers(
    links: Sequence[_Link],
    starts: Sequence["array[int]"],
    ends: Sequence["array[int]"],
    waits: Sequence["array[int]"],
) -> Iterator[Transfer]:
    """Every tensor's way between ranks: from the later post of its two ends to its arrival.

    The arrival shows only where the receiver waited for it; elsewhere it was not later than the
    action that used it, and the usual time is taken.
    """
    found: list[tuple[Transfer, bool]] = []
    for link in links:
        ready = max(ends[link.source][link.sent], ends[link.destination][link.received])
        # the data may be there before the call that sends them returns
        arrival = starts[link.destination][link.used]
        transfer = Transfer(link.send, link.source, link.destination, min(ready, arrival), arrival)
        found.append((transfer, waits[link.destination][link.used] > WAITED_NS))
    times = [t.end - t.start for t, waited in found if waited]
    usual = round(median(times)) if times else 0
    for transfer, waited in found:
        end = transfer.end if waited else min(transfer.end, transfer.start + usual)
        yield transfer._replace(end=end)
