"""Run: schedules for real on PyTorch's runtime, and what was measured as Timelines."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from unbubble.errors import InputError
from unbubble.runtime.launch import Job, launch
from unbubble.schedule import Schedule, format_csv
from unbubble.simulate import Timeline

GRADIENT_TOLERANCE = 1e-5


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
    """What one rank recorded of one pipeline: its lowered order, then per step begin, end and wait
    of each action and the optimizer's time, in ns, and the loss where the last stage is."""

    actions: list[str]
    begins: list[list[int]] = msgspec.field(default_factory=list)
    ends: list[list[int]] = msgspec.field(default_factory=list)
    waits: list[list[int]] = msgspec.field(default_factory=list)
    optimizer: list[int] = msgspec.field(default_factory=list)
    losses: list[float] = msgspec.field(default_factory=list)


class Gradients(msgspec.Struct, kw_only=True):
    """The largest difference of any parameter's gradient from the single process."""

    largest_difference: float
    parameter: str
    parameters: int

    @property
    def equal(self) -> bool:
        """Whether the difference is rounding; NaN is not."""
        return self.largest_difference <= GRADIENT_TOLERANCE


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
    seed: int = 0,
    learning_rate: float = 1e-3,
    timeout_s: float = 120.0,
    on_progress: Callable[[str], None] = lambda line: None,
) -> list[Measured]:
    """Run schedules of one workload on processes of this machine, one a rank, in one launch.

    Raises RunError if a rank is lost. Gradients that differ are reported, not raised.
    """
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
    zero = min(r.begins[step][0] for r in ranks)
    starts, ends = [], []
    for record in ranks:
        start, end = array("q"), array("q")
        before = record.begins[step][0]
        columns = zip(record.actions, record.waits[step], record.ends[step], strict=True)
        for text, wait, finish in columns:
            codes = 2 if text.endswith("OVERLAP_F_B") else 1
            start.extend([before + wait - zero] * codes)
            end.extend([finish - zero] * codes)
            before = finish
        starts.append(start)
        ends.append(end)
    return Timeline(
        schedule=order,
        starts=tuple(starts),
        ends=tuple(ends),
        begin=0,
        finish=max(row[-1] for row in ends),
        unit="s",
        ticks_per_unit=10**9,
        measured=True,
    )
