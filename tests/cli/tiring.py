"""Models whose second layer bears four microbatches of a step, and not eight."""

import os
import signal
import time

import torch
from torch import nn

BEARS = 6
"""A step of four and what finds out the shapes."""
SLOW = 4
"""Calls that are so slow that twice as many microbatches pay on the busiest machine."""


class Tiring(nn.Module):
    def __init__(self, deed):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.deed = deed
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        time.sleep(0.05 if self.calls <= SLOW else 0.004)
        if os.environ["RANK"] == "1" and self.calls > BEARS:
            self.deed()
        return x * self.weight


def _build(deed):
    x = torch.ones(2, 4)
    return [Tiring(lambda: None), Tiring(deed)], lambda out, y: (out - y).square().mean(), (x, x)


def killed():
    return _build(lambda: os.kill(os.getpid(), signal.SIGKILL))


def interrupting():
    """Ctrl-C, as the terminal sends it to the command."""

    def deed():
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)

    return _build(deed)
