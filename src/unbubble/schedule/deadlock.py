"""Deadlock: the actions at which ranks wait for ever.

Every rank runs its actions one after another. With sends and receives in the schedule only these
wait, each for its other end; the n-th send from one rank to another meets the n-th receive, as
communication libraries have it. In a compute-only schedule an action waits for its input.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from unbubble.action import JOINED, KIND_MASK, STAGE_MASK, STAGE_SHIFT, B, F, I, send_of, unpack
from unbubble.schedule.order import Schedule
from unbubble.schedule.post import Posts, messages
from unbubble.schedule.rules import position_of

SENDS = ("blocking", "buffered", "batched")

_STAGE = 1 << STAGE_SHIFT


class Blocked(NamedTuple):
    """An action that never runs, and the one on another rank that it waits for."""

    rank: int
    position: int
    action: str
    waits_for: str


def blocked_actions(schedule: Schedule, posts: Posts, send: str) -> Iterator[Blocked]:
    """The action at which each stuck rank waits, none if all come to their end; `posts` are the
    schedule's, `send` one of SENDS."""
    if posts.channels:
        return _blocked_posts(schedule, posts, send)
    return _blocked_compute(schedule)


def _group_ends(posts: Posts, rank: int, batched: bool) -> list[int]:
    """For every post of a rank the end of the group that is posted at once with it."""
    row = posts.rows[rank]
    ends = list(range(1, len(row.places) + 1))
    if batched:
        peers = [posts.channels[side >> 1][1 - (side & 1)] for side in row.sides]
        for i in range(len(ends) - 2, -1, -1):
            if peers[i] == peers[i + 1] and row.places[i] + 1 == row.places[i + 1]:
                ends[i] = ends[i + 1]
    return ends


def _blocked_posts(schedule: Schedule, posts: Posts, send: str) -> Iterator[Blocked]:
    """Each rank posts a group, and the next when all of the group have met their other ends."""
    rows, count = posts.rows, 2 * len(posts.channels)
    group_ends = [_group_ends(posts, rank, send == "batched") for rank in range(len(rows))]
    buffered = send == "buffered"
    posted, met = [0] * count, [0] * count
    waits_for_side = [-1] * count
    at, posted_until = [0] * len(rows), [0] * len(rows)
    work = list(range(len(rows)))
    while work:
        rank = work.pop()
        own, i, until = rows[rank].sides, at[rank], posted_until[rank]
        while i < len(own):
            if i == until:
                until = group_ends[rank][i]
                for side in own[i:until]:
                    posted[side] += 1
                    if waits_for_side[side] >= 0:
                        work.append(waits_for_side[side])
                        waits_for_side[side] = -1
            side = own[i]
            if posted[side ^ 1] <= met[side] and not (buffered and side & 1 == 0):
                waits_for_side[side ^ 1] = rank
                break
            met[side] += 1
            i += 1
        at[rank], posted_until[rank] = i, until
    for rank, (row, i) in enumerate(zip(rows, at, strict=True)):
        if i < len(row.codes):
            code = row.codes[i]
            receive = unpack(*messages([code]))
            other = receive if row.sides[i] & 1 == 0 else send_of(receive)
            position = position_of(schedule.codes[rank], row.places[i])
            yield Blocked(rank, position, str(unpack(code)), str(other))


def _blocked_compute(schedule: Schedule) -> Iterator[Blocked]:
    next_rank, previous_rank = schedule.placement.next_rank, schedule.placement.previous_rank

    def need(code: int) -> int:
        """The code of the action on another rank that this one waits for, −1: none; a backward
        of either kind goes as B."""
        stage, kind = code >> STAGE_SHIFT & STAGE_MASK, code & KIND_MASK
        base = code & ~(KIND_MASK | JOINED)
        if kind == F and previous_rank[stage] >= 0:
            return base - _STAGE + F
        if kind in (B, I) and next_rank[stage] >= 0:
            return base + _STAGE + B
        return -1

    rows = [row.tolist() for row in schedule.codes]
    at = [0] * len(rows)
    done: set[int] = set()
    waits: dict[int, list[int]] = {}
    stuck: dict[int, int] = {}
    work = list(range(len(rows)))
    while work:
        rank = work.pop()
        row = rows[rank]
        stuck.pop(rank, None)
        while (i := at[rank]) < len(row):
            stop = i + 2 if row[i] & JOINED else i + 1
            missing = [n for c in row[i:stop] if (n := need(c)) >= 0 and n not in done]
            if missing:
                waits.setdefault(missing[0], []).append(rank)
                stuck[rank] = missing[0]
                break
            for code in row[i:stop]:
                kind = code & KIND_MASK
                made = code & ~(KIND_MASK | JOINED) | (B if kind == I else kind)
                done.add(made)
                work += waits.pop(made, ())
            at[rank] = stop
    for rank, wanted in sorted(stuck.items()):
        position = position_of(schedule.codes[rank], at[rank])
        action = next(islice(schedule.actions(rank), position, None))
        yield Blocked(rank, position, str(action), _maker(schedule, wanted))


def _maker(schedule: Schedule, tensor: int) -> str:
    """The action that makes a tensor; a gradient is made by B or by I."""
    half = tensor - B + I
    stage = tensor >> STAGE_SHIFT & STAGE_MASK
    row = schedule.codes[schedule.placement.rank_of[stage]]
    split = tensor & KIND_MASK == B and (half in row or half | JOINED in row)
    return str(unpack(half if split else tensor))
