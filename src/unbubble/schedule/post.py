"""Posts: the ends of the tensors' ways between ranks, the sends and receives of an order.

A channel is a pair of ranks in one direction. Channel k has two *sides*: 2k sends, 2k + 1 receives.
"""

from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

from unbubble.action import (
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


class RankPosts(NamedTuple):
    """One rank's sends and receives in order, but for those that lead to no other rank: where each
    stands in the rank's row of codes, its code and its side."""

    places: list[int]
    codes: list[int]
    sides: list[int]


class Posts(NamedTuple):
    """Every rank's posts, and each channel's sending and receiving rank."""

    rows: list[RankPosts]
    channels: list[tuple[int, int]]


def posts_of(schedule: Schedule) -> Posts:
    """A schedule's posts."""
    channels: dict[tuple[int, int], int] = {}
    rows = []
    for rank, row in enumerate(schedule.codes):
        kinds = [*map(KIND_AND_STAGE.__and__, row)]
        side_of = {}
        for kind in set(kinds):
            peer = _peer(kind, schedule.placement)
            if peer >= 0:
                receives = kind & KIND_MASK in (RECV_F, RECV_B)
                channel = (peer, rank) if receives else (rank, peer)
                side_of[kind] = 2 * channels.setdefault(channel, len(channels)) + receives
        sides = [*map(side_of.get, kinds, repeat(-1))]
        places = [place for place, side in enumerate(sides) if side >= 0]
        codes = [*map(row.__getitem__, places)]
        rows.append(RankPosts(places, codes, [*map(sides.__getitem__, places)]))
    return Posts(rows, list(channels))


def messages(codes: Iterable[int]) -> list[int]:
    """The codes of the receives that such sends meet, or that such receives are."""
    return [code + _TO_MESSAGE[code & KIND_MASK] for code in codes]


def _peer(kind_and_stage: int, placement: Placement) -> int:
    """The rank at the other end of such a send or receive; −1: none, or it is neither."""
    kind, stage = kind_and_stage & KIND_MASK, kind_and_stage >> STAGE_SHIFT
    if kind not in _TO_MESSAGE:
        return -1
    ahead = kind in (SEND_F, RECV_B)
    return (placement.next_rank if ahead else placement.previous_rank)[stage]
