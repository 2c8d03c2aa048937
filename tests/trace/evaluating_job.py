"""Two processes that accumulate gradients over two calls of a schedule and evaluate behind each
step, under PyTorch's profiler. Beside each trace stands what a clock says (see `truth`).
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
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.profiler import ProfilerActivity, profile, schedule

WIDTH, SAMPLES, MICROBATCHES, STEPS = 256, 64, 4, 2
CASES = {
    "1f1b": (Schedule1F1B, 1, True),
    "gpipe": (ScheduleGPipe, 1, True),
    "interleaved": (ScheduleInterleaved1F1B, 2, True),
    "unmarked": (ScheduleGPipe, 1, False),
}
"""The schedule, the stages of a rank, and whether the profiler is told of the steps."""
METHODS = ("forward_one_chunk", "backward_one_chunk")


def train(folder, progress):
    torch.set_num_threads(1)
    for name, case in CASES.items():
        inside = Path(folder, name)
        inside.mkdir(exist_ok=True)
        traced(inside, *case)


def traced(folder, made, virtual, marked):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    count = ranks * virtual
    stages = [
        PipelineStage(layers(4 + s), s, count, torch.device("cpu"))
        for s in range(rank, count, ranks)
    ]
    noted = []
    calls = [0]
    for stage in stages:
        for method in METHODS:
            note(noted, calls, stage, method)
    pipeline = made(
        stages if virtual > 1 else stages[0], MICROBATCHES, loss_fn=nn.functional.mse_loss
    )
    optimizer = torch.optim.SGD([p for s in stages for p in s.submod.parameters()], lr=1e-3)
    batch = torch.randn(MICROBATCHES * SAMPLES, WIDTH)
    given = (batch,) if rank == 0 else ()
    wanted = {"target": batch} if rank == ranks - 1 else {}

    def step(number):
        begin = time.time_ns()
        optimizer.zero_grad()
        for call in range(2):
            calls[0] = call
            pipeline.step(*given, **wanted)
        before = time.time_ns()
        optimizer.step()
        noted.append(("optimizer", -1, number, before, time.time_ns()))
        noted.append(("step", -1, number, begin, time.time_ns()))
        kept = len(noted)
        with torch.no_grad():
            pipeline.eval(*given, **wanted)
        del noted[kept:]

    step(-1)
    noted.clear()
    file = str(folder / f"rank{rank}.json")
    if marked:
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, warmup=1, active=STEPS),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(file),
        ) as profiler:
            for number in range(1 + STEPS):
                step(number)
                profiler.step()
    else:
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for number in range(STEPS):
                step(number)
        profiler.export_chrome_trace(file)
    (folder / f"truth_rank{rank}.json").write_text(json.dumps(noted))


def layers(depth):
    return nn.Sequential(
        *[layer for _ in range(depth) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    )


def note(noted, calls, stage, method):
    """Note when a stage's method ran, its microbatches numbered on from call to call."""
    call = getattr(stage, method)

    def timed(microbatch, *args, **kwargs):
        begin = time.time_ns()
        result = call(microbatch, *args, **kwargs)
        number = calls[0] * MICROBATCHES + microbatch
        noted.append((method, stage.stage_index, number, begin, time.time_ns()))
        return result

    setattr(stage, method, timed)
