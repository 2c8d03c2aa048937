"""Run: schedules for real on PyTorch's runtime."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from unbubble.action import Kind
from unbubble.errors import InputError
from unbubble.runtime.launch import Job, launch
from unbubble.runtime.measured import Measured, PipelineResult, measured
from unbubble.schedule import Schedule, format_csv
from unbubble.schedule.check import check


class Setup(NamedTuple):
    """One pipeline to run: its order of actions, how many layers each stage holds, and which stages
    recompute their layers' forwards in the backward (none where it is empty)."""

    schedule: Schedule
    layers_per_stage: Sequence[int]
    recompute: Sequence[bool] = ()


class PipelineJob(msgspec.Struct, kw_only=True):
    """A Setup as the processes read it: PyTorch's CSV, compute only or with comms."""

    csv: str
    with_comms: bool
    microbatches: int
    rank_of: list[int]
    layers_per_stage: list[int]
    recompute: list[bool]

    @classmethod
    def of(cls, setup: Setup) -> "PipelineJob":
        schedule, layers, recompute = setup
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
            recompute=list(recompute) or [False] * len(layers),
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
    for setup in setups:
        if prove:
            _proved(setup.schedule)
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
    return [
        measured(result, setup.schedule.placement, setup.schedule.name)
        for setup, result in zip(setups, results, strict=True)
    ]


def _proved(schedule: Schedule) -> None:
    """Raises InputError unless the schedule is complete, free of deadlock, and such that PyTorch's
    runtime finds the right losses."""
    name = schedule.name or "the schedule"
    report = check(schedule)
    for rank, _, action, fault in report.faults:
        raise InputError(f"{name}: {action} on rank {rank}: {fault}")
    for rank, _, blocked, other in report.deadlock:
        raise InputError(
            f"{name} deadlocks under blocking sends: {blocked} on rank {rank} waits for {other}"
        )
    last = schedule.num_stages - 1
    order = [a.microbatch for r in range(schedule.ranks) for action in schedule.actions(r)
             for a in action.parts if a.kind is Kind.F and a.stage == last]  # fmt: skip
    if order != sorted(order):
        late = next(a for a, b in pairwise(order) if a > b)
        raise InputError(
            f"{name}: {last}F{late} comes before a lower microbatch of the last stage, and "
            "PyTorch's runtime takes the loss of microbatch i from that stage's i-th forward"
        )
