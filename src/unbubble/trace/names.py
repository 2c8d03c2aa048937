"""Names: what a profiler range's name says about the pipeline.

PP:2F0, PP:(0F3;5B1)OVERLAP_F_B     torch.distributed.pipelining's schedules of actions
Forward 3, Backward 3               its GPipe: no stage in the name
pp:forward_one_chunk/stage=1/mb=0   a range of one's own around a stage's methods
"""

import re
from typing import NamedTuple

from unbubble.action import Action, Kind, parse
from unbubble.errors import InputError


class Named(NamedTuple):
    """An action read from a name. `tight`: the range holds the call alone, not the runtime's work
    around it (such ranges begin after and end before what belongs to the action)."""

    action: Action
    tight: bool = False


_BARE = re.compile(r"(Forward|Backward) ([0-9]{1,9})")
_METHOD = re.compile(
    r".{0,60}?(forward|backward|backward_weight)_one_chunk\W+stage\W*([0-9]{1,7})\W+"
    r"(?:mb|microbatch)\W*([0-9]{1,9})"
)
_STEP = re.compile(r"ProfilerStep#([0-9]{1,18})")
_LOOP = re.compile(
    r"(?:train(?:ing)?[ _-]?)?(?:step|iteration|iter)[ _:#=-]{0,3}([0-9]{1,18})", re.IGNORECASE
)
_METHOD_KINDS = {"forward": Kind.F, "backward": Kind.B, "backward_weight": Kind.W}
NO_STAGE = -1


def action_named(name: str) -> Named | None:
    """The action of a range, or None for a range of something else."""
    if name.startswith("PP:"):
        try:
            return Named(parse(name[3:]))
        except InputError:
            return None
    if match := _BARE.fullmatch(name):
        return Named(Action(Kind.F if match[1] == "Forward" else Kind.B, NO_STAGE, int(match[2])))
    if "_one_chunk" in name and (match := _METHOD.fullmatch(name)):
        return Named(Action(_METHOD_KINDS[match[1]], int(match[2]), int(match[3])), tight=True)
    return None


def step_named(name: str) -> int | None:
    """The number of a profiler step's range."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def loop_named(name: str) -> int | None:
    """The number of a range that someone put around a turn of the training loop."""
    match = _LOOP.fullmatch(name)
    return int(match[1]) if match else None


def is_optimizer(name: str) -> bool:
    """Whether a range is an optimizer's step (not its zero_grad)."""
    return name.startswith("Optimizer.step#")


_RECOMPUTE = re.compile(r"(?:.{0,40}[:/. ])?recomput(?:e|es|ing|ation)\b.*", re.IGNORECASE)


def is_recompute(name: str) -> bool:
    """Whether a range says that a forward runs again within it."""
    return _RECOMPUTE.fullmatch(name) is not None


_COLLECTIVE_KERNELS = re.compile(
    r"nccl|rccl|msccl|nvshmem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|"
    r"deep_?ep|cross_device_reduce|Memcpy PtoP|Memcpy P2P",
    re.IGNORECASE,
)


COMPUTE, COLLECTIVE, P2P, EITHER = 0, 1, 2, 3
"""What a kernel is: work, communication, or maybe a transfer of the pipeline; of the last two its
launch tells which it is."""


def kernel_kind(name: str) -> int:
    """What a kernel (or copy) is by its name: all-to-all and transfers share `SendRecv`, and RCCL
    has one kernel for everything."""
    if _COLLECTIVE_KERNELS.search(name) is None:
        return COMPUTE
    if "_Generic" in name:
        return EITHER
    return P2P if "SendRecv" in name else COLLECTIVE


_TRANSFER = re.compile(r"(?:gloo|nccl|mpi|ucc|xccl):(send|recv)\b.*")


def transfer_named(name: str) -> str:
    """`send` or `recv` for the range of a process group's point-to-point operation, else empty."""
    match = _TRANSFER.fullmatch(name)
    return match[1] if match else ""


def is_talk(name: str) -> bool:
    """Whether a range is a process group's operation."""
    return name.startswith(("gloo:", "nccl:", "mpi:", "ucc:", "xccl:"))
