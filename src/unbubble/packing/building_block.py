"""Building blocks: a schedule as one microbatch's slots on every rank, repeated every six slots.

    rank 0  0 . . . 0 . . a . . . . a        V-Min, p=2: F0 at 0, F1 at 3, I1 at 4, I0 at 7
    rank 1  . 0 0 . . a a .                  and the next microbatch's at 6, 9, 10, 13

On two stages a rank (there and back) a microbatch has six actions; the two W take the slots that
are left. How long a block's activations live sets the memory of the schedule: a microbatch on a
rank holds its first stage from F0 to I0 and its second from F1 to I1.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from unbubble.action import Kind
from unbubble.schedule.weave import run, weave

if TYPE_CHECKING:
    from array import array

PERIOD = 6


class Slots(NamedTuple):
    """The slots of one rank's F and I of its two stages, on the way there and on the way back."""

    forward_there: int
    forward_back: int
    input_back: int
    input_there: int


def repeat(block: Sequence[Slots], microbatches: int) -> list["array[int]"]:
    """Every rank's order of F and I; `block[r]` are the slots of rank r."""
    ranks = len(block)
    rows = []
    for rank, slots in enumerate(block):
        there, back = rank, 2 * ranks - 1 - rank
        lanes = [
            (slot % PERIOD, slot // PERIOD, run(kind, stage, 0, microbatches))
            for slot, kind, stage in zip(
                slots, (Kind.F, Kind.F, Kind.I, Kind.I), (there, back, back, there), strict=True
            )
        ]
        lanes.sort(key=itemgetter(0))  # a round is a period, in which each lane has its slot
        rows.append(weave(*((codes, delay) for _, delay, codes in lanes)))
    return rows
