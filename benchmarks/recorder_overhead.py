"""What the live recorder adds to a training step: the same step with and without it, by turns.

    python benchmarks/recorder_overhead.py [--pairs 40] [--ranks 2]

For a small decoder and for emulated devices, under PyTorch's own 1F1B and under its schedule
runtime: pairs of steps, one recorded and one not, in an order that changes. First the ratio of the
fastest quarters, which other work on the machine disturbs least, and the median of the pairs'
ratios with how far chance takes it. Then what the machine's load does not reach: the difference of
the processor time that the training thread takes for a step, and the recorder's calls of such a
step around functions that do nothing, with the record's way to the file; both as parts of the step.
Exit status 1 if either is more than 1 %.
"""

import argparse
import gc
import sys
import tempfile
from itertools import product
from pathlib import Path
from statistics import fmean, median, quantiles
from time import perf_counter, perf_counter_ns, thread_time
from types import SimpleNamespace
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    schedules,
)

from unbubble import record
from unbubble.runtime.decoder import decoder
from unbubble.runtime.emulated import sleeping
from unbubble.runtime.launch import Job, launch
from unbubble.runtime.recorder import Recorder
from unbubble.runtime.segments import Segments
from unbubble.runtime.workload import Stage
from unbubble.trace.live import Run, Step

MICROBATCHES = 8
MODELS = ("decoder", "emulated")
SCHEDULES = {"1F1B": (Schedule1F1B, 1), "interleaved": (ScheduleInterleaved1F1B, 2)}
EMULATED_S = 0.004
MOST = 0.01


class Loop:
    """This rank's part of a training, whose steps can be recorded or not."""

    def __init__(self, model: str, kind: Any, virtual: int, folder: str):
        rank, ranks = dist.get_rank(), dist.get_world_size()
        count = ranks * virtual
        if model == "decoder":
            made = decoder(blocks=6, width=128, heads=4, vocabulary=1024, length=128, samples=2)
        else:
            made = sleeping([[EMULATED_S] * 3] * count, numbers=4096)
        bounds = [len(made.layers) * s // count for s in range(count + 1)]
        stages = [
            PipelineStage(
                Stage(made.layers[bounds[s] : bounds[s + 1]]), s, count, torch.device("cpu")
            )
            for s in range(rank, count, ranks)
        ]
        self.schedule = kind(stages if virtual > 1 else stages[0], MICROBATCHES, loss_fn=made.loss)
        self.optimizer = torch.optim.SGD(
            [p for s in stages for p in s.submod.parameters()], lr=1e-4
        )
        inputs, targets = made.batch(0, MICROBATCHES)
        self.given = () if rank else (inputs,)
        self.wanted = {"target": targets} if rank == ranks - 1 else {}
        self.plain_step = self.schedule.step
        self.recorder = record(self.schedule, self.optimizer, folder=folder)

    def step(self, recorded: bool) -> tuple[float, float]:
        """Seconds of one step from a common start, and of this thread's processor time."""
        call = self.schedule.step if recorded else self.plain_step
        gc.collect()
        dist.barrier()
        begin, worked = perf_counter(), thread_time()
        call(*self.given, **self.wanted)
        self.optimizer.step()
        worked, end = thread_time() - worked, perf_counter()
        self.optimizer.zero_grad()
        return end - begin, worked


def measure(argument: Any, progress: Any) -> Any:
    """What `Loop.step` gives of every pair, plain and recorded: a job's task."""
    model, schedule, pairs, folder = argument
    loop = Loop(model, *SCHEDULES[schedule], folder)
    rows = []
    with loop.recorder:
        for _ in range(3):
            loop.step(True)
        for number in range(pairs):
            swapped = number % 2 == 1
            both = loop.step(swapped), loop.step(not swapped)
            rows.append(both[::-1] if swapped else both)
    return rows


def own_time(virtual: int) -> float:
    """Seconds of the recorder's own calls of one step, and of its record's way to the file."""
    stage = SimpleNamespace(stage_index=1, dw_builder=None, submod=nn.Identity())
    for name in ("forward_maybe_with_nosync", "backward_maybe_with_nosync", "get_fwd_recv_ops",
                 "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops"):  # fmt: skip
        setattr(stage, name, lambda *_: [1])
    stage.forward_one_chunk = lambda i: stage.forward_maybe_with_nosync()
    stage.backward_one_chunk = lambda i: stage.backward_maybe_with_nosync()
    stage.backward_weight_one_chunk = stage.perform_reduce_grad = lambda *_: None
    network = schedules._batch_p2p, schedules._wait_batch_p2p
    schedules._batch_p2p, schedules._wait_batch_p2p = (lambda ops: ops), (lambda work: None)

    def step() -> None:
        for i in range(MICROBATCHES * virtual):
            for way, act in (("fwd", stage.forward_one_chunk), ("bwd", stage.backward_one_chunk)):
                receives = getattr(stage, f"get_{way}_recv_ops")(i)
                schedules._wait_batch_p2p(schedules._batch_p2p(receives))
                act(i)
                schedules._batch_p2p(getattr(stage, f"get_{way}_send_ops")(i))

    run = Run(run="own", rank=0, world_size=1, pipeline_ranks=[0], host="", epoch_ns=0)
    recorder, plain, recorded = Recorder(), [], []
    with tempfile.TemporaryDirectory() as folder:
        segments = Segments(folder, run, max_bytes=8 << 20, keep=2)
        for number in range(300):
            begin = perf_counter()
            step()
            plain.append(perf_counter() - begin)
            recorder.watch_stage(stage)
            begin = perf_counter()
            with recorder.recording():
                step()
            times = [end - recorder.begin for end in recorder.ends]
            segments.write(
                recorder.actions,
                Step(step=number, order=0, begin=recorder.begin, finish=perf_counter_ns(),
                     waits=recorder.waits, times=times, own=recorder.computes),
            )  # fmt: skip
            recorded.append(perf_counter() - begin)
            recorder.unwatch()
        segments.close()
    schedules._batch_p2p, schedules._wait_batch_p2p = network
    return median(recorded) - median(plain)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--pairs", type=int, default=40)
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--model", choices=MODELS, action="append")
    chosen = options.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    worst = 0.0
    for model, schedule in product(chosen.model or MODELS, SCHEDULES):
        with tempfile.TemporaryDirectory() as folder:
            argument = [model, schedule, chosen.pairs, folder]
            rows = launch(
                Job(task="recorder_overhead:measure", argument=argument, processes=chosen.ranks)
            )
        quarter = (len(rows) + 3) // 4
        wall = [(without[0], with_it[0]) for without, with_it in rows]
        plain, recorded = (fmean(sorted(times)[:quarter]) for times in zip(*wall, strict=True))
        ratios = [b / a - 1 for a, b in wall]
        low, middle, high = quantiles(ratios, n=4)
        worked = median(with_it[1] - without[1] for without, with_it in rows)
        own = own_time(SCHEDULES[schedule][1])
        worst = max(worst, worked / plain, own / plain)
        chance = (high - low) / len(rows) ** 0.5
        print(f"{model}, {schedule}: step {plain * 1e3:.1f} ms; recorded "
              f"{recorded / plain - 1:+.2%}, pairs {middle:+.2%} ± {chance:.2%}; processor time "
              f"{worked * 1e6:+.0f} µs, {worked / plain:+.3%}; own calls {own * 1e6:.0f} µs, "
              f"{own / plain:.3%}", flush=True)  # fmt: skip
    sys.exit(1 if worst > MOST else 0)


if __name__ == "__main__":
    main()
