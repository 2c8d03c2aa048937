"""Deadlock: the actions at which ranks wait for ever.

Every rank runs its actions one after another. With sends and receives in the schedule only these
wait, each for its other end; the n-th send from one rank to another meets the n-th receive, as
communication libraries have it. In a compute-only schedule an action waits for its input.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from unbubble.action import JOINED, KIND_MASK, STAGE_MASK, STAGE_SHIFT, Kind, unpack
from unbubble.schedule.order import Schedule
from unbubble.schedule.rules import B, F, I, positions
from unbubble.schedule.transfer import Transfer

SENDS = ("blocking", "buffered", "batched")

_STAGE = 1 << STAGE_SHIFT


class Blocked(NamedTuple):
    """An action that never runs, and the one on another rank that it waits for."""

    rank: int
    position: int
    action: str
    waits_for: str


def blocked_actions(
    schedule: Schedule, transfers: list[list[Transfer]], send: str
) -> Iterator[Blocked]:
    """The action at which each stuck rank waits, none if all come to their end; `transfers` are
    the schedule's (see `transfers_of`), `send` one of SENDS."""
    if any(transfers):
        return _blocked_transfers(transfers, send)
    return _blocked_compute(schedule)


def _groups(row: list[Transfer], batched: bool) -> list[int]:
    """Where each group of a rank's transfers that are posted at once begins, and the end."""
    begins = [
        i
        for i, transfer in enumerate(row)
        if not batched
        or i == 0
        or row[i - 1].peer != transfer.peer
        or row[i - 1].position + 1 != transfer.position
    ]
    return [*begins, len(row)]


def _blocked_transfers(rows: list[list[Transfer]], send: str) -> Iterator[Blocked]:
    """Each rank posts one group after the other, when the one before has met its other ends."""
    groups = [_groups(row, send == "batched") for row in rows]
    at = [0] * len(rows)
    # by the two ranks of a channel, sender first: how many are posted so far at either end
    sent: Counter[tuple[int, int]] = Counter()
    received: Counter[tuple[int, int]] = Counter()
    unmet: dict[int, list[tuple[Transfer, int]]] = {}
    work = list(range(len(rows)))

    def met(rank: int, transfer: Transfer, number: int) -> bool:
        if transfer.is_send:
            return send == "buffered" or received[rank, transfer.peer] >= number
        return sent[transfer.peer, rank] >= number

    while work:
        rank = work.pop()
        while True:
            waiting = [t for t in unmet.pop(rank, ()) if not met(rank, *t)]
            if waiting:
                unmet[rank] = waiting
                break
            if at[rank] == len(groups[rank]) - 1:
                break
            begin, end = groups[rank][at[rank] : at[rank] + 2]
            at[rank] += 1
            posted = unmet[rank] = []
            for transfer in rows[rank][begin:end]:
                side, channel = (
                    (sent, (rank, transfer.peer))
                    if transfer.is_send
                    else (received, (transfer.peer, rank))
                )
                side[channel] += 1
                posted.append((transfer, side[channel]))
            if transfer.peer in unmet:
                work.append(transfer.peer)
    for rank, waiting in sorted(unmet.items()):
        transfer = waiting[0][0]
        other = transfer.message if transfer.is_send else _send_of(transfer.message)
        yield Blocked(rank, transfer.position, str(unpack(transfer.code)), str(unpack(other)))


def _send_of(receive: int) -> int:
    """The code of the send that a receive takes."""
    if receive & KIND_MASK == Kind.RECV_F:
        return receive - _STAGE + Kind.SEND_F - Kind.RECV_F
    return receive + _STAGE + Kind.SEND_B - Kind.RECV_B


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
        position = next(p for p, _ in islice(positions(schedule.codes[rank]), at[rank], None))
        action = next(islice(schedule.actions(rank), position, None))
        yield Blocked(rank, position, str(action), _maker(schedule, wanted))


def _maker(schedule: Schedule, tensor: int) -> str:
    """The action that makes a tensor; a gradient is made by B or by I."""
    half = tensor - B + I
    stage = tensor >> STAGE_SHIFT & STAGE_MASK
    row = schedule.codes[schedule.placement.rank_of[stage]]
    split = tensor & KIND_MASK == B and (half in row or half | JOINED in row)
    return str(unpack(half if split else tensor))
