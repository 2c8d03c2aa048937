"""Post: one end of a tensor's way between two ranks, a send or a receive of the order."""

from typing import NamedTuple

from unbubble.action import (
    JOINED,
    KIND_MASK,
    RECV_B,
    RECV_F,
    SEND_B,
    SEND_F,
    STAGE_MASK,
    STAGE_SHIFT,
)
from unbubble.schedule.order import Schedule

_STAGE = 1 << STAGE_SHIFT


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
    next_rank, previous_rank = schedule.placement.next_rank, schedule.placement.previous_rank
    rows = []
    for row in schedule.codes:
        posts = []
        position = 0
        for code in row:
            kind = code & KIND_MASK
            if SEND_F <= kind <= RECV_B:
                stage = code >> STAGE_SHIFT & STAGE_MASK
                ahead = kind in (SEND_F, RECV_B)
                peer = next_rank[stage] if ahead else previous_rank[stage]
                if peer >= 0:
                    message = code
                    if kind == SEND_F:
                        message += _STAGE + RECV_F - SEND_F
                    elif kind == SEND_B:
                        message += RECV_B - SEND_B - _STAGE
                    posts.append(Post(position, code, message, peer))
            position += not code & JOINED
        rows.append(posts)
    return rows
