"""Workload: what is trained: the ordered layers, the loss and the data.

A user's model is named MODULE:FUNCTION, or MODULE:FUNCTION(1, "a", [2.5]) with arguments as in
JSON. The function returns a Workload, or the tuple (layers, loss, batch):

    layers   a sequence of torch modules, each taking what the one before returns
    loss     loss(output, target), averaged over the samples of a microbatch
    batch    (inputs, targets): one microbatch, the same at every call;
             or a function of a number that returns that microbatch of the data
"""

import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from unbubble.errors import InputError, names_like

Microbatch = tuple[torch.Tensor, torch.Tensor]

_TARGET = re.compile(r"([\w.]+):(\w+)(?:\((.*)\))?", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model as an ordered list of layers, its loss, and `microbatch(i)` → (inputs, targets)."""

    layers: Sequence[nn.Module]
    loss: Callable[[Any, torch.Tensor], torch.Tensor]
    microbatch: Callable[[int], Microbatch]

    def batch(self, first: int, count: int) -> Microbatch:
        """Microbatches `first` … `first + count − 1` as one batch, samples in order.

        Raises InputError where their shapes differ: the runtime cuts a batch into equal parts, so
        that samples would meet the targets of others, and stages keep the shapes they began with.
        """
        parts = [self.microbatch(i) for i in range(first, first + count)]
        shapes = [tuple(tuple(tensor.shape) for tensor in part) for part in parts]
        for i, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise InputError(
                    f"microbatch {first + i} has inputs and targets of {shape[0]} and {shape[1]}, "
                    f"and microbatch {first} of {shapes[0][0]} and {shapes[0][1]}; a pipeline's "
                    "microbatches all have the same shape: pad them, or leave out what is left over"
                )
        return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


class Stage(nn.Module):
    """Consecutive layers run one after another; a layer may return a tensor or a tuple of them.

    With `recompute` only the inputs of the layers are kept for the backward, which runs their
    forwards again, layer by layer.
    """

    def __init__(self, layers: Sequence[nn.Module], *, recompute: bool = False):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.recompute = recompute

    def forward(self, *inputs: torch.Tensor) -> Any:
        value: Any = inputs
        for layer in self.layers:
            given = value if isinstance(value, tuple) else (value,)
            if self.recompute:
                value = checkpoint(layer, *given, use_reentrant=False)
            else:
                value = layer(*given)
        return tuple(map(_no_view, value)) if isinstance(value, tuple) else _no_view(value)


def _no_view(value: Any) -> Any:
    """The same memory, not known as a view: PyTorch's split backward detaches a stage's outputs in
    place, which views refuse, and that of nn.Linear over three dimensions is one."""
    if isinstance(value, torch.Tensor) and value._is_view() and value.requires_grad:
        return torch.ops.aten._unsafe_view.default(value, value.shape)
    return value


def load(target: str, seed: int = 0) -> Workload:
    """Import MODULE:FUNCTION and build its workload; the same seed gives the same parameters."""
    match = _TARGET.fullmatch(target.strip())
    if match is None:
        raise InputError(
            f"{target!r} does not name a model; write MODULE:FUNCTION, as in mymodel:build"
        )
    module_name, function_name, given = match.groups()
    if (here := os.getcwd()) not in sys.path:  # a console script's path lacks it
        sys.path.insert(0, here)
    try:
        arguments = json.loads(f"[{given or ''}]")
        module = importlib.import_module(module_name)
        function = getattr(module, function_name, None)
    except json.JSONDecodeError as error:
        raise InputError(f"{target}: the arguments are not JSON: {error}") from None
    except ModuleNotFoundError as error:
        raise InputError(f"{target}: there is no module {error.name!r} to import") from None
    if not callable(function):
        near = names_like(function_name, (n for n in dir(module) if callable(getattr(module, n))))
        raise InputError(
            f"{target}: the module has no function {function_name!r}"
            + (f"; did you mean {' or '.join(near)}?" if near else "")
        )
    torch.manual_seed(seed)
    made = _workload(target, function(*arguments))
    return replace(made, loss=partial(_one_number, target, made.loss))


def _workload(target: str, made: Any) -> Workload:
    if not isinstance(made, Workload):
        try:
            layers, loss, batch = made
        except (TypeError, ValueError):
            raise InputError(
                f"{target} returned {type(made).__name__}; it must return (layers, loss, batch)"
            ) from None
        microbatch = batch if callable(batch) else lambda number: batch
        layers = list(layers) if isinstance(layers, Iterable) else []
        made = Workload(layers=layers, loss=loss, microbatch=microbatch)
    if not made.layers or not all(isinstance(layer, nn.Module) for layer in made.layers):
        raise InputError(f"{target}: layers must be a non-empty sequence of torch modules")
    sample: Any = made.microbatch(0)
    if not _is_microbatch(sample):
        raise InputError(
            f"{target}: a batch must be (inputs, targets), two tensors with the samples as their "
            "first dimension"
        )
    if not callable(made.loss):
        raise InputError(f"{target}: loss must be a function of (output, target)")
    owner: dict[int, int] = {}
    for number, layer in enumerate(made.layers):
        for parameter in layer.parameters():
            if owner.setdefault(id(parameter), number) != number:
                raise InputError(
                    f"{target}: layers {owner[id(parameter)]} and {number} share a parameter; "
                    "PyTorch's pipeline stages cannot tie weights: give each its own, or make them "
                    "one layer"
                )
    return made


def _one_number(target: str, loss: Callable[..., Any], output: Any, wanted: Any) -> torch.Tensor:
    """The loss; PyTorch's own errors name neither it nor the function that returned it."""
    found = loss(output, wanted)
    if isinstance(found, torch.Tensor) and found.numel() == 1:
        return found
    tensor = isinstance(found, torch.Tensor)
    what = f"a tensor of shape {tuple(found.shape)}" if tensor else f"{type(found).__name__}"
    raise InputError(
        f"{target}: loss returned {what}; it must return a tensor of one number, the mean over the "
        "samples of a microbatch, as in (output - target).square().mean()"
    )


def _is_microbatch(value: Any) -> bool:
    pair = isinstance(value, Sequence) and len(value) == 2
    return pair and all(isinstance(x, torch.Tensor) and x.dim() for x in value)
