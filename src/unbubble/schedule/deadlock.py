"""Deadlock: the actions at which ranks wait for ever.

Every rank runs its actions one after another. With sends and receives in the schedule only these
wait, each for its other end; the n-th send from one rank to another meets the n-th receive, as
communication libraries have it. In a compute-only schedule an action waits for its input.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from unbubble.action import JOINED, KIND_MASK, STAGE_MASK, STAGE_SHIFT, Kind, unpack
from unbubble.schedule.order import Schedule
from unbubble.schedule.rules import B, F, I, RECV_B, RECV_F, SEND_B, SEND_F, positions

SENDS = ("blocking", "buffered", "batched")

_STAGE = 1 << STAGE_SHIFT


class Blocked(NamedTuple):
    """An action that never runs, and the one on another rank that it waits for."""

    rank: int
    position: int
    action: str
    waits_for: str


def blocked_actions(schedule: Schedule, send: str) -> Iterator[Blocked]:
    """The action at which each stuck rank waits; none if every rank comes to its end."""
    return _blocked_transfers(schedule, send) if schedule.with_comms else _blocked_compute(schedule)


class _Transfer(NamedTuple):
    """A send or receive: the n-th of its side of a channel (a pair of ranks, in one direction)."""

    position: int
    code: int
    channel: int
    number: int
    is_send: bool
    peer: int


def _transfers(schedule: Schedule) -> list[list[_Transfer]]:
    """Every rank's sends and receives; those that go nowhere wait for nothing."""
    placement = schedule.placement
    rank_of, up, down = placement.rank_of, placement.sends_up, placement.sends_down
    channels: dict[tuple[int, int], int] = {}
    numbers: dict[tuple[int, bool], int] = {}
    rows = []
    for rank, row in enumerate(schedule.codes):
        transfers = []
        position = -1
        for code in row:
            position += not code & JOINED
            kind = code & KIND_MASK
            if not SEND_F <= kind <= RECV_B:
                continue
            stage = code >> STAGE_SHIFT & STAGE_MASK
            if kind == SEND_F and up[stage]:
                peer = rank_of[stage + 1]
            elif kind == SEND_B and down[stage]:
                peer = rank_of[stage - 1]
            elif kind == RECV_F and not placement.is_first(stage) and up[stage - 1]:
                peer = rank_of[stage - 1]
            elif kind == RECV_B and not placement.is_last(stage) and down[stage + 1]:
                peer = rank_of[stage + 1]
            else:
                continue
            is_send = kind == SEND_F or kind == SEND_B
            pair = (rank, peer) if is_send else (peer, rank)
            channel = channels.setdefault(pair, len(channels))
            number = numbers.get((channel, is_send), 0)
            numbers[channel, is_send] = number + 1
            transfers.append(_Transfer(position, code, channel, number, is_send, peer))
        rows.append(transfers)
    return rows


def _groups(transfers: list[_Transfer], batched: bool) -> list[int]:
    """Where each group of transfers that are posted at once begins, and the end."""
    begins = [
        i
        for i, t in enumerate(transfers)
        if not (
            batched
            and i
            and transfers[i - 1].peer == t.peer
            and transfers[i - 1].position == t.position - 1
        )
    ]
    return [*begins, len(transfers)]


def _blocked_transfers(schedule: Schedule, send: str) -> Iterator[Blocked]:
    rows = _transfers(schedule)
    groups = [_groups(row, send == "batched") for row in rows]
    waits = send != "buffered"
    at = [0] * len(rows)
    sent: dict[int, int] = {}
    received: dict[int, int] = {}

    def unmet(rank: int) -> _Transfer | None:
        """The first transfer of the rank's group whose other end is not posted."""
        begin, end = groups[rank][at[rank] : at[rank] + 2]
        for transfer in rows[rank][begin:end]:
            other = received if transfer.is_send else sent
            if (waits or not transfer.is_send) and other.get(
                transfer.channel, 0
            ) <= transfer.number:
                return transfer
        return None

    work = [rank for rank, row in enumerate(rows) if row]
    stuck: dict[int, _Transfer] = {}
    while work:
        rank = work.pop()
        posted = rank in stuck
        while at[rank] < len(groups[rank]) - 1:
            if not posted:
                begin, end = groups[rank][at[rank] : at[rank] + 2]
                for transfer in rows[rank][begin:end]:
                    side = sent if transfer.is_send else received
                    side[transfer.channel] = transfer.number + 1
                if transfer.peer in stuck:
                    work.append(transfer.peer)
            blocked = unmet(rank)
            if blocked is not None:
                stuck[rank] = blocked
                break
            stuck.pop(rank, None)
            at[rank] += 1
            posted = False
    for rank, transfer in sorted(stuck.items()):
        yield Blocked(rank, transfer.position, str(unpack(transfer.code)), _other_end(transfer))


def _other_end(transfer: _Transfer) -> str:
    action = unpack(transfer.code)
    step = 1 if action.kind in (Kind.SEND_F, Kind.RECV_B) else -1
    kind = Kind[("RECV_" if transfer.is_send else "SEND_") + action.kind.name[-1]]
    return str(action._replace(kind=kind, stage=action.stage + step))


def _blocked_compute(schedule: Schedule) -> Iterator[Blocked]:
    placement = schedule.placement
    up, down = placement.sends_up, placement.sends_down
    takes_up = [not placement.is_first(s) and up[s - 1] for s in range(len(up))]
    takes_down = [not placement.is_last(s) and down[s + 1] for s in range(len(down))]

    def need(code: int) -> int:
        """The code of the action on another rank that this one waits for, −1: none; a backward
        of either kind goes as B."""
        stage, kind = code >> STAGE_SHIFT & STAGE_MASK, code & KIND_MASK
        base = code & ~(KIND_MASK | JOINED)
        if kind == F and takes_up[stage]:
            return base - _STAGE + F
        if (kind == B or kind == I) and takes_down[stage]:
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
