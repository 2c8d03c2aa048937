"""Run: schedules for real on PyTorch's runtime, and what was measured as Timelines."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import msgspec

from unbubble.action import KIND_MASK, TRANSFER, Action, Kind, pack, unpack
from unbubble.errors import InputError
from unbubble.runtime.gradients import Gradients
from unbubble.runtime.launch import Job, launch
from unbubble.schedule import Schedule, format_csv
from unbubble.schedule.check import check
from unbubble.simulate import Timeline, Transfer

WAITED_NS = 50_000
"""A shorter wait for a receive is the call itself: the data were there."""


class Setup(NamedTuple):
    """One pipeline to run: its order of actions and how many layers each stage holds."""

    schedule: Schedule
    layers_per_stage: Sequence[int]


class PipelineJob(msgspec.Struct, kw_only=True):
    """A Setup as the processes read it: PyTorch's CSV, compute only or with comms."""

    csv: str
    with_comms: bool
    microbatches: int
    rank_of: list[int]
    layers_per_stage: list[int]

    @classmethod
    def of(cls, setup: Setup) -> "PipelineJob":
        schedule, layers = setup
        if len(layers) != schedule.num_stages or min(layers) < 1:
            raise InputError(
                f"{list(layers)} layers for {schedule.num_stages} stages; each stage needs at "
                "least one layer"
            )
        return cls(
            csv=format_csv(schedule),
            with_comms=schedule.with_comms,
            microbatches=schedule.microbatches,
            rank_of=list(schedule.placement.rank_of),
            layers_per_stage=list(layers),
        )


class RunJob(msgspec.Struct, kw_only=True):
    """Pipelines of one workload, their steps taken in turn so that drift meets all alike."""

    target: str
    pipelines: list[PipelineJob]
    steps: int
    warmup: int
    verify: bool
    seed: int
    learning_rate: float


class RankSteps(msgspec.Struct, kw_only=True):
    """What one rank recorded of one pipeline: its lowered order, then for each step its begin, of
    each action the end, the wait and the model's time, and the optimizer's time, in ns; the loss
    where the last stage is."""

    actions: list[str]
    begins: list[int] = msgspec.field(default_factory=list)
    ends: list[list[int]] = msgspec.field(default_factory=list)
    waits: list[list[int]] = msgspec.field(default_factory=list)
    computes: list[list[int]] = msgspec.field(default_factory=list)
    optimizer: list[int] = msgspec.field(default_factory=list)
    losses: list[float] = msgspec.field(default_factory=list)


class PipelineResult(msgspec.Struct, kw_only=True):
    ranks: list[RankSteps]
    gradients: Gradients | None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A finished run: one measured Timeline a step, losses, gradients (None: not compared)."""

    steps: tuple[Timeline, ...]
    optimizer_s: tuple[float, ...]
    losses: tuple[float, ...]
    gradients: Gradients | None

    @property
    def step_times_s(self) -> tuple[float, ...]:
        """Makespan of every step."""
        return tuple(step.in_unit(step.makespan) for step in self.steps)


def run(
    setups: Sequence[Setup],
    target: str,
    *,
    steps: int = 5,
    warmup: int = 2,
    verify: bool = True,
    prove: bool = True,
    seed: int = 0,
    learning_rate: float = 1e-3,
    timeout_s: float = 120.0,
    on_progress: Callable[[str], None] = lambda line: None,
) -> list[Measured]:
    """Run schedules of one workload on processes of this machine, one a rank, in one launch.

    Raises InputError for a schedule that is not proved right (`prove`), RunError if a rank is
    lost. Gradients that differ are reported, not raised.
    """
    for schedule, _ in setups:
        if prove:
            _proved(schedule)
    ranks = {setup.schedule.ranks for setup in setups}
    if len(ranks) != 1 or steps < 1 or warmup < 0:
        raise InputError(
            f"a launch runs schedules of one number of ranks, at least one step of each; got "
            f"{sorted(ranks)} ranks, {steps} steps after {warmup}"
        )
    argument = RunJob(
        target=target,
        pipelines=[PipelineJob.of(setup) for setup in setups],
        steps=steps,
        warmup=warmup,
        verify=verify,
        seed=seed,
        learning_rate=learning_rate,
    )
    job = Job(
        task="unbubble.runtime.worker:run",
        argument=msgspec.to_builtins(argument),
        processes=ranks.pop(),
        timeout_s=timeout_s,
    )
    results = msgspec.convert(launch(job, on_progress), list[PipelineResult])
    return [measured(setup, result) for setup, result in zip(setups, results, strict=True)]


def _proved(schedule: Schedule) -> None:
    """Raises InputError unless the schedule is complete, free of deadlock, and such that PyTorch's
    runtime finds the right losses."""
    name = schedule.name or "the schedule"
    report = check(schedule)
    for rank, _, action, fault in report.faults:
        raise InputError(f"{name}: {action} on rank {rank}: {fault}")
    for rank, _, blocked, other in report.deadlock:
        raise InputError(f"{name} deadlocks: {blocked} on rank {rank} waits for {other}")
    last = schedule.num_stages - 1
    order = [a.microbatch for r in range(schedule.ranks) for action in schedule.actions(r)
             for a in action.parts if a.kind is Kind.F and a.stage == last]  # fmt: skip
    if order != sorted(order):
        late = next(a for a, b in pairwise(order) if a > b)
        raise InputError(
            f"{name}: {last}F{late} comes before a lower microbatch of the last stage, and "
            "PyTorch's runtime takes the loss of microbatch i from that stage's i-th forward"
        )


def measured(setup: Setup, result: PipelineResult) -> Measured:
    """What the ranks recorded of one pipeline, as Timelines."""
    steps = range(len(result.ranks[0].begins))
    order = Schedule.of(
        [r.actions for r in result.ranks], setup.schedule.placement, name=setup.schedule.name
    )
    return Measured(
        steps=tuple(_timeline(order, result.ranks, step) for step in steps),
        optimizer_s=tuple(max(r.optimizer[step] for r in result.ranks) / 1e9 for step in steps),
        losses=tuple(loss for r in result.ranks for loss in r.losses),
        gradients=result.gradients,
    )


def _timeline(order: Schedule, ranks: Sequence[RankSteps], step: int) -> Timeline:
    """One recorded step in ns; the wait for inputs stands before each action's start."""
    zero = min(r.begins[step] for r in ranks)
    rows: list[tuple[array[int], ...]] = []
    for record in ranks:
        start, end, waited, overhead = columns = tuple(array("q") for _ in range(4))
        before = record.begins[step]
        for text, wait, compute, finish in zip(
            record.actions, record.waits[step], record.computes[step], record.ends[step],
            strict=True,
        ):  # fmt: skip
            codes = 2 if text.endswith("OVERLAP_F_B") else 1
            start.extend([before + wait - zero] * codes)
            end.extend([finish - zero] * codes)
            waited.extend([wait] * codes)
            overhead.extend([0] * (codes - 1) + [finish - before - wait - compute])
            before = finish
        rows.append(columns)
    starts, ends, waits, overheads = (tuple(column) for column in zip(*rows, strict=True))
    return Timeline(
        schedule=order,
        starts=starts,
        ends=ends,
        begin=0,
        finish=max(row[-1] for row in ends),
        overhead=overheads,
        transfers=tuple(_transfers(order, starts, ends, waits)),
        unit="s",
        ticks_per_unit=10**9,
        measured=True,
    )


def _transfers(
    order: Schedule,
    starts: Sequence["array[int]"],
    ends: Sequence["array[int]"],
    waits: Sequence["array[int]"],
) -> Iterator[Transfer]:
    """Every tensor's way between ranks: from the later post of its two ends to its arrival.

    The arrival shows only where the receiver waited for it; elsewhere it was not later than the
    action that used it, and the usual time is taken.
    """
    rank_of = order.placement.rank_of
    posted: dict[int, int] = {}
    for codes, end in zip(order.codes, ends, strict=True):
        posted |= {c: e for c, e in zip(codes, end, strict=True) if c & KIND_MASK in TRANSFER}
    found: list[tuple[Transfer, bool]] = []
    for rank, codes in enumerate(order.codes):
        for i, code in enumerate(codes):
            kind, stage, microbatch, _ = unpack(code)
            source = stage - 1 if kind is Kind.F else stage + 1
            if kind > Kind.I or not 0 <= source < len(rank_of) or rank_of[source] == rank:
                continue
            send, receive = (
                (Kind.SEND_F, Kind.RECV_F) if kind is Kind.F else (Kind.SEND_B, Kind.RECV_B)
            )
            ready = max(
                posted[pack(send, source, microbatch)], posted[pack(receive, stage, microbatch)]
            )
            # the data may be there before the call that sends them returns
            arrival = starts[rank][i]
            action = Action(send, source, microbatch)
            transfer = Transfer(action, rank_of[source], rank, min(ready, arrival), arrival)
            found.append((transfer, waits[rank][i] > WAITED_NS))
    times = [t.end - t.start for t, waited in found if waited]
    usual = round(median(times)) if times else 0
    for transfer, waited in found:
        yield (
            transfer if waited else transfer._replace(end=min(transfer.end, transfer.start + usual))
        )
