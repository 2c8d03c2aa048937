"""A small decoder on two processes that checkpoints its blocks, under PyTorch's profiler.

Beside each trace stands what a clock says: when the checkpointed functions ran within a backward.
"""

import json
import time
from pathlib import Path

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleZBVZeroBubble,
)
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from unbubble.runtime.decoder import Block

WIDTH, LENGTH = 256, 128


class Clock:
    """Calls of the functions that it wraps, those within a backward alone."""

    def __init__(self):
        self.spans = []

    def __call__(self, function):
        def timed(*args):
            if torch._C._current_graph_task_id() < 0:
                return function(*args)
            begin = time.time_ns()
            try:
                return function(*args)
            finally:
                self.spans.append((begin, time.time_ns()))

        return timed


class Blocks(nn.Module):
    """Two blocks; `run` says what of them is checkpointed."""

    def __init__(self, run, clock):
        super().__init__()
        self.first, self.second = Block(WIDTH, 4), Block(WIDTH, 4)
        self.run, self.clock = run, clock

    def forward(self, x):
        return self.run(self.first, self.second, x, self.clock)


def reentrant(first, second, x, clock):
    x = checkpoint(clock(first), x, use_reentrant=True)
    return checkpoint(clock(second), x, use_reentrant=True)


def plain(first, second, x, clock):
    x = checkpoint(clock(first), x, use_reentrant=False)
    return checkpoint(clock(second), x, use_reentrant=False)


def a_part(first, second, x, clock):
    return second(checkpoint(clock(first), x, use_reentrant=False))


def nested_reentrant(first, second, x, clock):
    def both(y):
        return reentrant(first, second, y, clock)

    return checkpoint(clock(both), x, use_reentrant=True)


def nested(first, second, x, clock):
    def both(y):
        return second(checkpoint(clock(first), y, use_reentrant=False))

    return checkpoint(clock(both), x, use_reentrant=False)


def selective(first, second, x, clock):
    """All but the products of matrices is run again."""
    keep = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]

    def policy(_, operation, *args, **named):
        return (
            CheckpointPolicy.MUST_SAVE if operation in keep else CheckpointPolicy.PREFER_RECOMPUTE
        )

    def contexts():
        return create_selective_checkpoint_contexts(policy)

    for block in (first, second):
        x = checkpoint(clock(block), x, use_reentrant=False, context_fn=contexts)
    return x


def nothing(first, second, x, clock):
    return second(first(x))


CASES = {
    "reentrant": (reentrant, Schedule1F1B, 1, 4),
    "plain": (plain, ScheduleInterleaved1F1B, 2, 2),
    "a_part": (a_part, Schedule1F1B, 1, 2),
    "nested_reentrant": (nested_reentrant, Schedule1F1B, 1, 2),
    "nested": (nested, Schedule1F1B, 1, 2),
    "selective": (selective, Schedule1F1B, 1, 2),
    "split": (a_part, ScheduleZBVZeroBubble, 2, 2),
    "nothing": (nothing, Schedule1F1B, 1, 2),
}
"""What is checkpointed, the schedule, the stages of a rank, the microbatches."""


def train(folder, progress):
    """A folder a case, with a trace and the clock's spans of every rank."""
    for name, case in CASES.items():
        inside = Path(folder, name)
        inside.mkdir(exist_ok=True)
        traced(inside, *case)


def traced(folder, run, schedule_class, virtual, microbatches):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    count = ranks * virtual
    clock = Clock()
    here = list(range(rank, count, ranks))
    if schedule_class is ScheduleZBVZeroBubble:
        here = [rank, count - 1 - rank]
    # shapes are given, since finding them takes a backward that refuses reentrance
    like = torch.empty(1, LENGTH, WIDTH, requires_grad=True)
    stages = [
        PipelineStage(
            Blocks(run, clock),
            s,
            count,
            torch.device("cpu"),
            input_args=(like,),
            output_args=(like,),
        )
        for s in here
    ]
    pipeline = schedule_class(
        stages if virtual > 1 else stages[0], microbatches, loss_fn=nn.functional.mse_loss
    )
    batch = torch.randn(microbatches, LENGTH, WIDTH, requires_grad=True)
    given = (batch,) if 0 in here else ()
    wanted = {"target": torch.zeros(batch.shape)} if count - 1 in here else {}
    file = folder / f"rank{rank}.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(file)),
    ) as profiler:
        for _ in range(2):
            clock.spans.clear()
            pipeline.step(*given, **wanted)
            profiler.step()
    (folder / f"clock{rank}.json").write_text(json.dumps(clock.spans))
