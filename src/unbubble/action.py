"""Action: one operation of one stage on one microbatch, written as PyTorch writes it.

    2F0                      forward of stage 2 on microbatch 0
    1B3 · 1I3 · 1W3          full backward; its two halves: input gradient, weight gradient
    0SEND_F0 → 1RECV_F0      the activation's way up; 1SEND_B0 → 0RECV_B0 the gradient's way down
    (0F3;5B1)OVERLAP_F_B     a forward and a backward as one atomic action
    2REDUCE_GRAD             actions of a whole stage carry no microbatch

A schedule holds millions of actions, so beside the readable `Action` there is its **code**, one
integer: bits 0-4 the kind, bit 5 "joined with the next code" (the overlapped pair is two codes),
bits 6-29 the stage, bits 30-61 the microbatch plus one (0: none).
"""

import re
from enum import IntEnum
from typing import NamedTuple

from unbubble.errors import InputError, excerpt


class Kind(IntEnum):
    """What an action does; the value is what the kernel sees."""

    F = 0
    B = 1
    I = 2
    W = 3
    SEND_F = 4
    RECV_F = 5
    SEND_B = 6
    RECV_B = 7
    UNSHARD = 8
    RESHARD = 9
    REDUCE_GRAD = 10
    OVERLAP_F_B = 11
    CLIP = 12
    OPTIMIZER = 13


# plain ints for the loops over codes, where an enum's members are slow to look up and compare
F, B, I, W = map(int, (Kind.F, Kind.B, Kind.I, Kind.W))
SEND_F, RECV_F = int(Kind.SEND_F), int(Kind.RECV_F)
SEND_B, RECV_B = int(Kind.SEND_B), int(Kind.RECV_B)

COMPUTE = frozenset({Kind.F, Kind.B, Kind.I, Kind.W, Kind.OVERLAP_F_B})
"""Kinds that occupy a rank's compute stream."""
SENDS = frozenset({Kind.SEND_F, Kind.SEND_B})
RECEIVES = frozenset({Kind.RECV_F, Kind.RECV_B})
TRANSFER = SENDS | RECEIVES
"""Kinds that move a tensor between two ranks."""
WHOLE_STAGE = frozenset({Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD, Kind.CLIP, Kind.OPTIMIZER})
"""Kinds that concern a whole stage and carry no microbatch."""

KIND_MASK = 0x1F
JOINED = 0x20
STAGE_SHIFT = 6
STAGE_MASK = 0xFFFFFF
MICROBATCH_SHIFT = 30
KIND_AND_STAGE = KIND_MASK | STAGE_MASK << STAGE_SHIFT
MAX_STAGES = 1 << 24
MAX_MICROBATCHES = (1 << 31) - 1


class Action(NamedTuple):
    """One operation: its kind, its stage and its microbatch (−1 for actions of a whole stage).

    An overlapped pair has kind OVERLAP_F_B and its forward and backward in `pair`; its stage and
    microbatch are those of the forward.
    """

    kind: Kind
    stage: int
    microbatch: int = -1
    pair: "tuple[Action, Action] | None" = None

    def __str__(self) -> str:
        if self.pair is not None:
            return f"({self.pair[0]};{self.pair[1]})OVERLAP_F_B"
        number = "" if self.microbatch < 0 else str(self.microbatch)
        return f"{self.stage}{self.kind.name}{number}"

    def __repr__(self) -> str:
        return f"Action({str(self)!r})"

    @property
    def parts(self) -> "tuple[Action, ...]":
        """The actions it is made of: the two of an overlapped pair, else itself."""
        return self.pair if self.pair is not None else (self,)

    @property
    def is_compute(self) -> bool:
        return self.kind in COMPUTE

    @property
    def codes(self) -> tuple[int, ...]:
        """Its code, or the two codes of an overlapped pair."""
        if self.pair is not None:
            first, second = self.pair
            return (pack(*first[:3]) | JOINED, pack(*second[:3]))
        return (pack(self.kind, self.stage, self.microbatch),)


def overlap(forward: Action, backward: Action) -> Action:
    """The forward and the backward (B or I) as one atomic action."""
    if forward.kind is not Kind.F or backward.kind not in (Kind.B, Kind.I):
        raise InputError(
            f"an overlapped pair is one F, then one B or I; got {forward} and {backward}"
        )
    return Action(Kind.OVERLAP_F_B, forward.stage, forward.microbatch, (forward, backward))


RECEIVE_OF = {Kind.SEND_F: Kind.RECV_F, Kind.SEND_B: Kind.RECV_B}


def receive_of(send: Action) -> Action:
    """The receive that takes what a send gives: on the stage above, of a gradient below."""
    step = 1 if send.kind is Kind.SEND_F else -1
    return Action(RECEIVE_OF[send.kind], send.stage + step, send.microbatch)


SEND_OF = {receive: send for send, receive in RECEIVE_OF.items()}


def send_of(receive: Action) -> Action:
    """The send that a receive takes: the inverse of `receive_of`."""
    step = -1 if receive.kind is Kind.RECV_F else 1
    return Action(SEND_OF[receive.kind], receive.stage + step, receive.microbatch)


_RECEIVE_FOR = {Kind.F: Kind.RECV_F, Kind.B: Kind.RECV_B, Kind.I: Kind.RECV_B}


def receive_for(action: Action) -> Action | None:
    """The receive of the input of an F, B or I, if it comes from another rank; None for others."""
    kind = _RECEIVE_FOR.get(action.kind)
    return None if kind is None else Action(kind, action.stage, action.microbatch)


def pack(kind: int, stage: int, microbatch: int = -1) -> int:
    """The integer code of a plain action."""
    return kind | stage << STAGE_SHIFT | (microbatch + 1) << MICROBATCH_SHIFT


_KINDS = tuple(Kind)  # by value; a look-up is far quicker than a call of the enum


def unpack(code: int) -> Action:
    """The plain action of one code; the joined flag is dropped."""
    return Action(
        _KINDS[code & KIND_MASK],
        code >> STAGE_SHIFT & STAGE_MASK,
        (code >> MICROBATCH_SHIFT) - 1,
    )


def is_compute(code: int) -> bool:
    """Whether a code is F, B, I or W, joined or not (kinds 0 to 3)."""
    return code & (KIND_MASK & ~3) == 0


def is_transfer(code: int) -> bool:
    """Whether a code is a send or a receive (kinds 4 to 7)."""
    return code & (KIND_MASK & ~3) == SEND_F


_PLAIN = re.compile(
    r"([0-9]+)(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD|CLIP|OPTIMIZER|F|B|I|W)([0-9]*)"
)
_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")


def parse(text: str) -> Action:
    """Parse one action; the inverse of `str`.

    Raises InputError for anything else, also for what merely begins like an action (`0F0junk`).
    """
    word = text.strip()
    if match := _PAIR.fullmatch(word):
        return overlap(parse(match[1]), parse(match[2]))
    match = _PLAIN.fullmatch(word)
    if match is None:
        raise InputError(
            f"{excerpt(word)!r} is not an action; write stage, kind, microbatch as in 2F0, 1I3, "
            "0SEND_F0, 2REDUCE_GRAD or (0F3;5B1)OVERLAP_F_B"
        )
    kind = Kind[match[2]]
    if (kind in WHOLE_STAGE) != (match[3] == ""):
        rule = "carries no microbatch" if kind in WHOLE_STAGE else "needs a microbatch"
        example = Action(kind, 2, -1 if kind in WHOLE_STAGE else 0)
        raise InputError(f"{excerpt(word)!r}: {kind.name} {rule}, as in {example}")
    if len(match[1]) > 8 or len(match[3]) > 10:
        raise InputError(f"{excerpt(word)!r}: the stage or the microbatch is out of range")
    stage, microbatch = int(match[1]), int(match[3]) if match[3] else -1
    if stage >= MAX_STAGES or microbatch >= MAX_MICROBATCHES:
        raise InputError(f"{excerpt(word)!r}: the stage or the microbatch is out of range")
    return Action(kind, stage, microbatch)
