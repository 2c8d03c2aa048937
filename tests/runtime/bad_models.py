"""Models that go wrong on rank 1, named as MODULE:FUNCTION by the tests."""

import os
import signal
import time

import torch
from tests.models import acting
from torch import nn


def killed():
    return acting(lambda: os.kill(os.getpid(), signal.SIGKILL))


def raising():
    def deed():
        raise ValueError("no such\nluck")

    return acting(deed)


def hanging():
    return acting(lambda: time.sleep(1000))


def leaving():
    return acting(lambda: os._exit(7))


def exiting():
    raise SystemExit(0)


def asking():
    input("go on?")


def leaving_in_peace():
    return acting(lambda: os._exit(0))


def no_batch():
    return [nn.Linear(4, 4), nn.Linear(4, 4)], None, torch.ones(2)


def _layers(*layers):
    x = torch.linspace(-1, 1, 16).reshape(4, 4)
    return [*layers], lambda out, y: (out - y).square().mean(), (x, x)


def of_three_layers():
    return _layers(*(nn.Linear(4, 4) for _ in range(3)))


def with_a_sum():
    layers, _, batch = _layers(nn.Linear(4, 4), nn.Linear(4, 4))
    return layers, lambda out, y: (out - y).square().sum(), batch


def without_numbers():
    """The second stage has no parameter, and the loss is NaN."""
    layers, loss, batch = _layers(nn.Linear(4, 4), nn.ReLU())
    return layers, lambda out, y: loss(out, y) * float("nan"), batch


def tied():
    shared = nn.Linear(4, 4)
    x = torch.ones(2, 4)
    return [shared, shared], lambda out, y: (out - y).square().mean(), (x, x)


def growing():
    """Every microbatch has one sample more than the one before."""
    layers, loss, _ = _layers(nn.Linear(4, 4), nn.Linear(4, 4))
    return layers, loss, lambda i: (torch.ones(2 + i, 4), torch.ones(2 + i, 4))


def left_over():
    """5 samples in microbatches of 3."""
    layers, loss, _ = _layers(nn.Linear(4, 4), nn.Linear(4, 4))
    return layers, loss, lambda i: (torch.ones(2 if i else 3, 4), torch.ones(1))


def one_module():
    _, loss, batch = _layers()
    return nn.Linear(4, 4), loss, batch


def no_loss():
    layers, _, batch = _layers(nn.Linear(4, 4))
    return layers, 3, batch


def transposed():
    """A parameter on rank 1 whose rows do not follow one another in memory."""
    second = nn.Linear(4, 4)
    second.weight = nn.Parameter(second.weight.detach().t())
    return _layers(nn.Linear(4, 4), second)


def loss_of_none():
    layers, _, batch = _layers(nn.Linear(4, 4), nn.Linear(4, 4))
    return layers, lambda out, y: None, batch


def loss_of_samples():
    layers, _, batch = _layers(nn.Linear(4, 4), nn.Linear(4, 4))
    return layers, lambda out, y: (out - y).square().mean(1), batch


def of_another_seed():
    torch.manual_seed(os.getpid())
    return _layers(nn.Linear(4, 4), nn.Linear(4, 4))


def of_tokens():
    """1 and 3 valid tokens in turn, the loss their mean."""
    layers, _, _ = _layers(nn.Linear(4, 4), nn.Linear(4, 4))

    def batch(i):
        wanted = torch.tensor([0, 1, 2])
        return torch.eye(4)[:3], wanted if i % 2 else torch.where(wanted == 0, 0, -100)

    return layers, nn.functional.cross_entropy, batch


def frozen_first():
    """Nothing before the second layer is trained."""
    layers, loss, batch = _layers(nn.Linear(4, 4), nn.Linear(4, 4))
    layers[0].requires_grad_(False)
    return layers, loss, batch


def frozen():
    layers, loss, batch = frozen_first()
    layers[1].requires_grad_(False)
    return layers, loss, batch


class Twice(nn.Module):
    """One weight, used twice on the way."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4) + 0.1)

    def forward(self, x):
        return x @ self.weight @ self.weight


def of_weights_used_twice():
    return _layers(Twice(), Twice())


def of_views():
    """Of samples with several tokens nn.Linear returns a view."""
    layers, loss, (x, _) = _layers(*(nn.Linear(4, 4) for _ in range(4)))
    tokens = x.reshape(2, 2, 4)
    return layers, loss, (tokens, tokens)
