"""Emulated devices: stages that sleep for a planned time instead of computing.

Many ranks then fit on a few cores, and what is left to explain is the pipeline itself: PyTorch's
runtime, real messages, real waiting. The sleeps sit in the autograd graph where the work would be:
that of the input gradient on the way to the input, that of the weight gradient on the way to a
parameter, so that F, B, I and W each take their own planned time.
"""

from time import perf_counter_ns, sleep
from typing import Any

import torch
from torch import nn

from unbubble.runtime.workload import Workload


def _rest(seconds: float) -> None:
    """Sleep until a deadline; what the system oversleeps by is taken off the last stretch."""
    until = perf_counter_ns() + round(seconds * 1e9)
    while (left := until - perf_counter_ns()) > 0:
        sleep(max(0, left - OVERSLEEP_NS) / 1e9)


OVERSLEEP_NS = 60_000


class _SleepBackward(torch.autograd.Function):
    """Passes its input on; sleeps when the gradient comes back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        _rest(ctx.seconds)
        return gradient, None


class Sleeping(nn.Module):
    """A layer that takes `forward`, `backward_input` and `backward_weight` seconds.

    Where the input needs no gradient (the first stage), its time belongs to the weight gradient,
    as with real layers on PyTorch's runtime.
    """

    def __init__(self, forward: float, backward_input: float, backward_weight: float):
        super().__init__()
        self.seconds = (forward, backward_input, backward_weight)
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        forward, backward_input, backward_weight = self.seconds
        _rest(forward)
        if x.requires_grad:
            x = _SleepBackward.apply(x, backward_input)
        else:
            backward_weight += backward_input
        return x * _SleepBackward.apply(self.weight, backward_weight)


def sleeping(times_s: list[list[float]], numbers: int = 16384) -> Workload:
    """One layer for each [forward, backward_input, backward_weight]; `numbers` floats travel."""

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square().mean()

    def microbatch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((1, numbers), 1.0 + number), torch.zeros(1, numbers)

    return Workload(
        layers=[Sleeping(*times) for times in times_s], loss=loss, microbatch=microbatch
    )
