"""Worker: one rank of pipeline runs on PyTorch's own schedule runtime."""

import gc
import tempfile
from collections.abc import Callable, Sequence
from itertools import chain
from math import isfinite
from time import perf_counter_ns, sleep
from typing import Any

import msgspec
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from unbubble.action import Kind
from unbubble.errors import InputError, RunError
from unbubble.runtime import verify
from unbubble.runtime.measured import RankRecord
from unbubble.runtime.process import sentence
from unbubble.runtime.recorder import Recorder
from unbubble.runtime.run import PipelineJob, RunJob
from unbubble.runtime.workload import Stage, Workload, load
from unbubble.schedule import parse_csv

LEAD_NS = 10_000_000
"""How far ahead a common start is set: longer than a barrier and a broadcast take."""


def run(argument: Any, progress: Callable[[str], None]) -> Any:
    """Compare the gradients of every pipeline, then time their steps in turn.

    Returns a `PipelineResult` of each as plain values, all ranks' records in it.
    """
    job = msgspec.convert(argument, RunJob)
    # each pipeline trains a model of its own: another's optimizer must not move its parameters
    pipelines = [
        Pipeline(pipeline, load(job.target, job.seed), job.learning_rate)
        for pipeline in job.pipelines
    ]
    gradients: list[Any] = [None] * len(pipelines)
    if job.verify:
        progress("comparing gradients with one process that runs the whole batch")
        gradients = [verify.gradients(pipeline) for pipeline in pipelines]
    for number in range(-job.warmup, job.steps):
        progress(f"step {number + 1} of {job.steps}" if number >= 0 else "warming up")
        for pipeline in pipelines:
            pipeline.timed_step(keep=number >= 0)
    results = []
    for pipeline, difference in zip(pipelines, gradients, strict=True):
        ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, msgspec.to_builtins(pipeline.record))
        results.append({"ranks": ranks, "gradients": difference})
    return results


class Pipeline:
    """This rank's stages of a workload under one schedule, and the record of its steps."""

    def __init__(self, job: PipelineJob, workload: Workload, learning_rate: float):
        self.job = job
        self.workload = workload
        self.rank = dist.get_rank()
        if sum(job.layers_per_stage) != len(workload.layers):
            raise InputError(
                f"layers_per_stage holds {sum(job.layers_per_stage)} layers and the model has "
                f"{len(workload.layers)}; every layer is on one stage"
            )
        layers = iter(workload.layers)
        parts = [[next(layers) for _ in range(count)] for count in job.layers_per_stage]
        self.modules = {
            s: Stage(parts[s], recompute=job.recompute[s])
            for s, rank in enumerate(job.rank_of)
            if rank == self.rank
        }
        _check_trained(job, parts)
        last = len(job.rank_of) - 1
        self.holds_first, self.holds_last = 0 in self.modules, last in self.modules
        stages = [
            PipelineStage(module, s, len(job.rank_of), torch.device("cpu"))
            for s, module in self.modules.items()
        ]
        self.schedule = _PipelineScheduleRuntime(
            stages,
            job.microbatches,
            # a mean over the whole batch, also over accumulated steps; the runtime's own
            # scale_grads divides what earlier steps accumulated once more
            loss_fn=lambda output, target: workload.loss(output, target) / job.microbatches,
            scale_grads=False,
        )
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write(job.csv)
            file.flush()
            csv_format = "compute_comms" if job.with_comms else "compute_only"
            self.schedule._load_csv(file.name, format=csv_format)
        self.parameters = [p for m in self.modules.values() for p in m.parameters()]
        self.optimizer = torch.optim.SGD([{"params": self.parameters}], lr=learning_rate)
        self.recorder = Recorder()
        self.recorder.watch(self.schedule)
        self.record = RankRecord()

    def step(self, number: int) -> float | None:
        """Step on batch `number` without the optimizer; the mean loss where the last stage is."""
        count = self.job.microbatches
        inputs, targets = self.workload.batch(number * count, count)
        losses: list[torch.Tensor] = []
        with self.recorder.recording():
            try:
                self.schedule.step(
                    *((inputs,) if self.holds_first else ()),
                    **({"target": targets, "losses": losses} if self.holds_last else {}),
                    return_outputs=False,
                )
            except InputError:
                raise
            except Exception as error:
                where = f"in {self.recorder.action}: " if self.recorder.action else ""
                raise RunError(where + sentence(error)) from None
        return sum(loss.item() for loss in losses) if self.holds_last else None

    def timed_step(self, *, keep: bool) -> None:
        """One step from a common start, then the optimizer on its own."""
        # kept in place, so that every microbatch accumulates and none pays for fresh memory
        self.optimizer.zero_grad(set_to_none=False)
        gc.collect()
        begin_together()
        loss = self.step(0)
        done = perf_counter_ns()
        self.optimizer.step()
        if keep:
            self.record.optimizer.append(perf_counter_ns() - done)
            self.record.actions, columns = self.recorder.take()
            self.record.steps.append(columns())
            if loss is not None:
                self.record.losses.append(loss if isfinite(loss) else None)


def begin_together() -> None:
    """Return on all ranks at the same moment: a barrier lets them go one after the other.

    The moment is named by rank 0's clock; a machine whose clock differs by more than a second
    goes on at once.
    """
    dist.barrier()
    moment = torch.tensor([perf_counter_ns() + LEAD_NS])
    dist.broadcast(moment, 0)
    left = int(moment[0]) - perf_counter_ns()
    if 0 < left < 10**9:
        sleep(left / 1e9)


def _check_trained(job: PipelineJob, parts: Sequence[Sequence[nn.Module]]) -> None:
    """Refuse a model of which nothing is trained, and what PyTorch 2.13 trains wrongly without a
    word: its split backward finds a stage's weight gradients on the way to the stage's input, and
    drops them where no gradient goes there, because nothing before the stage is trained. Stage 0 is
    spared: its W is the full backward."""
    schedule = parse_csv(job.csv)
    actions = chain.from_iterable(map(schedule.actions, range(schedule.ranks)))
    splits = {part.stage for action in actions for part in action.parts if part.kind is Kind.I}
    trained = [any(p.requires_grad for m in part for p in m.parameters()) for part in parts]
    if True not in trained:
        raise InputError("no layer of the model has a parameter that is trained (requires_grad)")
    first = trained.index(True)
    if first and first in splits:
        raise InputError(
            f"the schedule splits the backward of stage {first}, and no stage before it has a "
            "parameter that is trained; PyTorch loses the stage's weight gradients then. Take a "
            "schedule with full backwards, as 1f1b, or put a layer that is trained on stage 0"
        )
