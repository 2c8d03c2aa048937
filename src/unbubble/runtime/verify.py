"""Verify: the pipeline's gradients against one process that runs the whole batch.

Both accumulate over two steps on different data, which also catches a runtime that scales what an
earlier step has left. Rank 0 is that process; each stage's owner compares its own parameters.
"""

from collections.abc import Iterable
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
import torch
from torch import distributed as dist

from unbubble.runtime.gradients import Gradients, within_rounding
from unbubble.runtime.workload import Stage, Workload

if TYPE_CHECKING:
    from unbubble.runtime.worker import Pipeline

STEPS = 2

Grads = list[list[torch.Tensor]]
"""Gradients by stage and parameter."""


def gradients(pipeline: "Pipeline") -> dict[str, Any]:
    """Run two steps both ways; the largest difference and where, the same on every rank.

    The difference of one parameter is max|a − b| / max(max|b|, 1e-3 × the largest gradient of the
    whole model), b being the single process. All gradients are cleared afterwards.
    """
    for number in range(STEPS):
        pipeline.step(number)
    actual = {s: [_taken(p) for p in m.parameters()] for s, m in pipeline.modules.items()}
    expected = _single_process(pipeline) if pipeline.rank == 0 else []
    floor = torch.tensor(1e-3 * max((float(g.abs().max()) for s in expected for g in s), default=0))
    dist.broadcast(floor, 0)
    rows: list[tuple[float, str]] = []
    for stage, owner in enumerate(pipeline.job.rank_of):
        wanted = _handed_over(expected[stage] if expected else actual.get(stage, []), owner)
        if owner == pipeline.rank:
            names = [name for name, _ in pipeline.modules[stage].named_parameters()]
            for name, a, b in zip(names, actual[stage], wanted, strict=True):
                rows.append((_difference(a, b, float(floor)), f"stage {stage} {name}"))
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, rows)
    everything = [row for rank in gathered for row in rank]
    # a NaN compares as larger than any number
    largest, where = max(everything, key=lambda row: (row[0] != row[0], row[0]))
    found = Gradients(
        largest_difference=largest if isfinite(largest) else None,
        parameter=where,
        parameters=len(everything),
    )
    if not found.equal:
        found.apart = _apart(pipeline)
        if not found.apart:
            found.of_model, found.summed = _of_model(pipeline, expected, float(floor))
    return msgspec.to_builtins(found)


def _apart(pipeline: "Pipeline") -> list[str]:
    """What the model has made otherwise on some rank: each made all of it, from the same seed."""
    workload, batches = pipeline.workload, range(STEPS)
    count = pipeline.job.microbatches
    mine = {
        "parameters": _digest(p for layer in workload.layers for p in layer.parameters()),
        "data": _digest(x for n in batches for x in workload.batch(n * count, count)),
    }
    all_ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(all_ranks, mine)
    return [what for what in mine if len({one[what] for one in all_ranks}) > 1]


def _digest(tensors: Iterable[torch.Tensor]) -> int:
    found = 0
    for tensor in tensors:
        plain = tensor.detach().contiguous().flatten()
        found = crc32(plain.view(torch.uint8).numpy(), found)
    return found


def _of_model(pipeline: "Pipeline", expected: Grads, floor: float) -> tuple[bool, bool]:
    """Whether one process differs from itself when it takes the batch in microbatches, and whether
    that is by a factor, their number."""
    answer = [(False, False)]
    if pipeline.rank == 0:
        parts = pipeline.job.microbatches
        again = _single_process(pipeline, parts=parts)
        pairs = list(zip(chain(*again), chain(*expected), strict=True))
        same, scaled = (
            all(within_rounding(_difference(a * by, b, floor)) for a, b in pairs)
            for by in (1, parts)
        )
        answer = [(not same, scaled and not same)]
    dist.broadcast_object_list(answer, 0)
    return answer[0]


def _single_process(pipeline: "Pipeline", *, parts: int = 1) -> Grads:
    """The whole batch through the whole model, at once or in parts, twice."""
    workload: Workload = pipeline.workload
    count = pipeline.job.microbatches
    model = Stage(workload.layers)
    for number in range(STEPS):
        batch = workload.batch(number * count, count)
        for inputs, targets in zip(*(x.chunk(parts) for x in batch), strict=True):
            (workload.loss(model(inputs), targets) / parts).backward()
    layers = iter(workload.layers)
    return [
        [_taken(p) for _ in range(held) for p in next(layers).parameters()]
        for held in pipeline.job.layers_per_stage
    ]


def _handed_over(tensors: list[torch.Tensor], owner: int) -> list[torch.Tensor]:
    """Rank 0's tensors on their owner's rank; elsewhere whatever was given."""
    if owner == 0:
        return tensors
    if dist.get_rank() == 0:
        for tensor in tensors:
            dist.send(tensor.contiguous(), owner)  # a transposed or channels-last one is not
    elif dist.get_rank() == owner:
        tensors = [torch.empty(tensor.shape, dtype=tensor.dtype) for tensor in tensors]
        for tensor in tensors:
            dist.recv(tensor, 0)
    return tensors


def _difference(a: torch.Tensor, b: torch.Tensor, floor: float) -> float:
    if a.numel() == 0:
        return 0.0
    scale = max(float(b.abs().max()), floor)
    largest = float((a - b).abs().max())
    return largest / scale if scale else largest


def _taken(parameter: torch.nn.Parameter) -> torch.Tensor:
    """The parameter's gradient, which is cleared."""
    gradient, parameter.grad = parameter.grad, None
    return torch.zeros_like(parameter) if gradient is None else gradient.detach()
