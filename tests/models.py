"""Models of two layers, of which the second does something on rank 1 that it should not."""

import os
import time

import torch
from torch import nn


class Acting(nn.Module):
    """Bears some calls, which take what `takes` says of their number, and then does the deed."""

    def __init__(self, deed, bears, takes):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.deed, self.bears, self.takes = deed, bears, takes
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        time.sleep(self.takes(self.calls))
        if os.environ["RANK"] == "1" and self.calls > self.bears:
            self.deed()
        return x * self.weight


def acting(deed, bears=2, takes=lambda call: 0):
    """Layers, loss and batch, as MODULE:FUNCTION gives them."""
    layers = [Acting(one, bears, takes) for one in (lambda: None, deed)]
    x = torch.ones(2, 4)
    return layers, lambda out, y: (out - y).square().mean(), (x, x)
