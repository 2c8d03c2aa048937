"""Post: one end of a tensor's way between two ranks, a send or a receive of the order."""

from typing import NamedTuple

from unbubble.action import (
    JOINED,
    KIND_AND_STAGE,
    KIND_MASK,
    RECV_B,
    RECV_F,
    SEND_B,
    SEND_F,
    STAGE_SHIFT,
)
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import Placement

_STAGE = 1 << STAGE_SHIFT
_TO_MESSAGE = {
    SEND_F: RECV_F - SEND_F + _STAGE,
    SEND_B: RECV_B - SEND_B - _STAGE,
    RECV_F: 0,
    RECV_B: 0,
}


class Post(NamedTuple):
    """A send or receive at its position in a rank's order; `message` is the code of the receive,
    the same for both ends, and `peer` the rank of the other end."""

    position: int
    code: int
    message: int
    peer: int

    @property
    def is_send(self) -> bool:
        return self.code != self.message


def posts_of(schedule: Schedule) -> list[list[Post]]:
    """Every rank's sends and receives in order, but for those that lead to no other rank."""
    rows = []
    for row in schedule.codes:
        kinds = set(map(KIND_AND_STAGE.__and__, row))
        ways = {kind: way for kind in kinds if (way := _way(kind, schedule.placement))}
        posts = []
        position = 0
        for code in row:
            if way := ways.get(code & KIND_AND_STAGE):
                posts.append(Post(position, code, code + way[0], way[1]))
            position += not code & JOINED
        rows.append(posts)
    return rows


def _way(kind_and_stage: int, placement: Placement) -> tuple[int, int] | None:
    """From the code of such a send or receive to its message, and the peer; None where that is no
    other rank, and for what is neither."""
    kind, stage = kind_and_stage & KIND_MASK, kind_and_stage >> STAGE_SHIFT
    if kind not in _TO_MESSAGE:
        return None
    ahead = kind in (SEND_F, RECV_B)
    peer = (placement.next_rank if ahead else placement.previous_rank)[stage]
    return (_TO_MESSAGE[kind], peer) if peer >= 0 else None
