"""Profiler: one process of a profile; layers as one-layer stages, and what they keep."""

import gc
import random
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

import msgspec
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from unbubble.runtime import exchange
from unbubble.runtime.profile import ProfileJob
from unbubble.runtime.recorder import Recorder
from unbubble.runtime.workload import Stage, Workload, load

KINDS = "FBIW"
PAUSE = 0.25
"""Of a round's time, the longest pause between two."""


def profile(argument: Any, progress: Callable[[str], None]) -> Any:
    """Measure memory, layers and transfers; returns a `ProfileResult` as plain values."""
    job = msgspec.convert(argument, ProfileJob)
    workload = load(job.target, job.seed)
    progress("measuring what every layer keeps for its backward")
    sizes = list(_sizes(workload))
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    group = groups[dist.get_rank()]

    def tell(number: int) -> None:
        progress(f"round {number + 1} of {job.rounds}" if number >= 0 else "warming up")

    layers = _time(workload, job, group, tell)
    overhead = _time(_overhead(), job, group, lambda number: None)[1]
    exchanges: list[Any] = []
    posts: dict[str, list[int]] = {"send": [], "recv": []}
    if dist.get_world_size() > 1:
        progress("measuring transfers")
        outputs = [size["output_bytes"] for size in sizes[:-1]]
        exchanges, posts = exchange.exchanges(job, outputs), exchange.posts(job, workload, outputs)
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, [overhead, *layers])
    overhead, *layers = (
        {kind: [t for row in rows for t in row[kind]] for kind in KINDS}
        for rows in zip(*everyone, strict=True)
    )
    return {
        "layers": [size | times for size, times in zip(sizes, layers, strict=True)],
        "overhead": overhead,
        "exchanges": exchanges,
        "posts": posts,
    }


class _Nothing(nn.Module):
    """A stage that computes nothing; a copy of its one number is what the runtime can detach."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


def _overhead() -> Workload:
    """Three stages that compute nothing: the middle one shows the runtime's own time."""
    number = torch.ones(1, requires_grad=True)
    return Workload(
        layers=[_Nothing() for _ in range(3)],
        loss=lambda output, target: output.sum(),
        microbatch=lambda i: (number, number),
    )


def _time(workload: Workload, job: ProfileJob, group: Any, on_round: Callable[[int], None]) -> Any:
    """Run all layers as stages of one rank; every process of the launch does so at once.

    A round is two microbatches: one with full backwards, one with split ones. Processes pause
    between rounds, each for a time of its own, so that a layer meets all others beside it, as in
    a pipeline, and not always itself. Returns the samples by layer and kind.
    """
    modules = [Stage([layer]) for layer in workload.layers]
    stages = [
        PipelineStage(module, s, len(modules), torch.device("cpu"), group=group)
        for s, module in enumerate(modules)
    ]
    schedule = schedules._PipelineScheduleRuntime(
        stages, 2, loss_fn=lambda output, target: workload.loss(output, target) / 2,
        scale_grads=False,
    )  # fmt: skip
    there = range(len(modules))
    order = [f"{s}F0" for s in there] + [f"{s}B0" for s in reversed(there)]
    order += [f"{s}F1" for s in there] + [f"{s}{k}1" for s in reversed(there) for k in "IW"]
    schedule._prepare_schedule_with_comms(
        {0: [schedules._Action.from_str(action) for action in order]}, "compute_comms"
    )
    inputs, targets = workload.batch(0, 2)
    samples: list[dict[str, list[int]]] = [{kind: [] for kind in KINDS} for _ in modules]
    recorder = Recorder()
    pauses = random.Random(dist.get_rank())
    took_ns = 0
    for number in range(-job.warmup, job.rounds):
        on_round(number)
        for module in modules:
            module.zero_grad(set_to_none=False)
        gc.collect()
        sleep(pauses.random() * PAUSE * took_ns / 1e9)
        with recorder.recording():
            schedule.step(inputs, target=targets, losses=[], return_outputs=False)
        before = recorder.begin
        for action, end in zip(order, recorder.ends, strict=True):
            if number >= 0:
                samples[int(action[:-2])][action[-2]].append(end - before)
            before = end
        took_ns = before - recorder.begin
    dist.barrier()
    return samples


def _sizes(workload: Workload) -> Iterator[dict[str, Any]]:
    """Every layer's bytes: what autograd saves, and what of it is left after the input gradient."""
    inputs, targets = workload.microbatch(0)
    value: Any = inputs
    for number, layer in enumerate(workload.layers):
        values = tuple(
            x.detach().requires_grad_(x.is_floating_point())
            for x in (value if isinstance(value, tuple) else (value,))
        )
        with _saved(layer) as saved:
            value = Stage([layer])(*values)
            result = value
            if number == len(workload.layers) - 1:
                result = workload.loss(value, targets)
        outputs = result if isinstance(result, tuple) else (result,)
        output_bytes = sum(x.nbytes for x in outputs)
        saved_bytes = saved()
        after_input = saved_bytes
        if number:
            gradients = [torch.ones_like(x) for x in outputs]
            value = tuple(x.detach() for x in outputs)
            result = outputs[0].detach() if len(outputs) == 1 else None
            detached = value[0] if len(value) == 1 else value
            kept = list(outputs)
            del outputs, result, value
            _, groups = stage_backward_input(kept, gradients, list(values), layer.parameters())
            del kept
            after_input = saved()
            stage_backward_weight(layer.parameters(), groups)
            value = detached
        layer.zero_grad()
        yield {
            "name": f"{number} {type(layer).__name__}",
            "saved_bytes": saved_bytes,
            "saved_after_input_bytes": after_input,
            "output_bytes": output_bytes,
            "weight_bytes": sum(p.nbytes for p in layer.parameters()),
        }


@contextmanager
def _saved(layer: nn.Module) -> Iterator[Callable[[], int]]:
    """Inside, count what autograd saves; the function tells the bytes that are still kept.

    A storage counts once however many views are saved; parameters and buffers do not count.
    """
    owned = {t.untyped_storage().data_ptr() for t in (*layer.parameters(), *layer.buffers())}
    alive: weakref.WeakSet[_Kept] = weakref.WeakSet()

    def pack(tensor: torch.Tensor) -> _Kept:
        kept = _Kept(tensor)
        alive.add(kept)
        return kept

    def count() -> int:
        gc.collect()
        storages = {k.tensor.untyped_storage().data_ptr(): k.tensor for k in alive}
        return sum(t.untyped_storage().nbytes() for p, t in storages.items() if p not in owned)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
        yield count


class _Kept:
    """A tensor that autograd saved; it goes when the graph lets go of it."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor
