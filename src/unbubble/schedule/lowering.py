"""Lowering: a compute-only order with its sends and receives put in.

A send always follows its action at once. Where a receive is posted is a choice, `receive`:

early          when its sender sends, in rounds of one action a rank: PyTorch's own order
just-in-time   right before the action that needs it
smart          at the start of the action during which its data are sent, by guessed times
rendezvous     the same where a transfer holds both its ranks until it is over, and a receive
               posted any earlier stops its rank

A receive posted long before its data are sent holds up whatever its rank posts behind it on the
same stream (pytorch#172668, #188833, torchtitan#2209); one posted right before its use leaves no
time to carry the data, and two ranks that both send first wait for ever where a send blocks. All
but "just-in-time" cannot deadlock, whatever a send does: all ranks post their transfers in the
order of one list of all transfers, so the first unfinished one of that list has both its ends.

    1F1B, rank 0 of 2     0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1
"""

from array import array
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush

from unbubble.action import (
    COMPUTE,
    JOINED,
    KIND_AND_STAGE,
    KIND_MASK,
    RECV_B,
    RECV_F,
    SEND_B,
    SEND_F,
    STAGE_MASK,
    STAGE_SHIFT,
    B,
    F,
    I,
    W,
    pack,
    unpack,
)
from unbubble.errors import InputError
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import Placement

RECEIVES = ("early", "just-in-time", "smart", "rendezvous")

_GUESS = {F: 10, I: 10, W: 10, B: 20}
_GUESS_TRANSFER = 1
"""Times good enough to say what is sent while a rank is busy with what."""


def lower(schedule: Schedule, receive: str = "early") -> Schedule:
    """The schedule with its sends and receives; `compute_only` takes them out again.

    Stages on one rank hand over without a send. Raises InputError for a schedule that has sends
    already, and for one whose actions can never all run.
    """
    if schedule.with_comms:
        raise InputError("the schedule has its sends and receives already")
    passes: dict[str, Callable[[Schedule], list[array[int]]]] = {
        "early": _early,
        "just-in-time": _just_in_time,
        "smart": partial(_in_guessed_order, transfer=_GUESS_TRANSFER),
        "rendezvous": partial(_in_guessed_order, transfer=0),
    }
    if receive not in passes:
        raise InputError(f"receive is {receive!r}; it is one of {', '.join(RECEIVES)}")
    return schedule.with_rows(passes[receive](schedule))


def compute_only(schedule: Schedule) -> Schedule:
    """The schedule without sends, receives and the actions of whole stages."""
    kept = COMPUTE
    rows = [array("q", [c for c in row if c & KIND_MASK in kept]) for row in schedule.codes]
    return schedule.with_rows(rows)


class _Row:
    """A rank's codes, and at each place what that action needs and who takes its result.

    A tensor goes by the code of its receive, also where it stays on its rank; −1 is none.
    """

    def __init__(self, row: "array[int]", placement: Placement):
        kinds = [*map(KIND_AND_STAGE.__and__, row)]
        ways = {kind: _way(kind, placement) for kind in set(kinds)}
        bare = [*map((~(KIND_AND_STAGE | JOINED)).__and__, row)]
        own = list(zip(bare, map(ways.__getitem__, kinds), strict=True))
        size = len(kinds)
        self.codes = row.tolist()
        self.needs = [base + way[0] if way[0] >= 0 else -1 for base, way in own]
        self.makes = [base + way[1] if way[1] >= 0 else -1 for base, way in own]
        self.sends = [base + way[2] if way[2] >= 0 else -1 for base, way in own]
        self.to = [way[3] for _, way in own]  # the rank that the result is sent to
        # behind each action, which as an overlapped pair takes two places
        self.ends = list(range(1, size + 1))
        if JOINED in map(JOINED.__and__, self.codes):
            self.ends = [min(i + (2 if c & JOINED else 1), size) for i, c in enumerate(self.codes)]


def _way(kind_and_stage: int, placement: Placement) -> tuple[int, int, int, int]:
    """The tensors that such an action needs and makes, its send, and the rank that this goes to."""
    kind, stage = kind_and_stage & KIND_MASK, kind_and_stage >> STAGE_SHIFT
    if kind == F:
        need = -1 if placement.is_first(stage) else pack(RECV_F, stage)
        made = -1 if placement.is_last(stage) else pack(RECV_F, stage + 1)
        to, send = placement.next_rank[stage], pack(SEND_F, stage)
    elif kind in (B, I):
        need = -1 if placement.is_last(stage) else pack(RECV_B, stage)
        made = -1 if placement.is_first(stage) else pack(RECV_B, stage - 1)
        to, send = placement.previous_rank[stage], pack(SEND_B, stage)
    else:
        return -1, -1, -1, -1
    return need, made, send if to >= 0 else -1, to


def _rows(schedule: Schedule) -> list[_Row]:
    return [_Row(row, schedule.placement) for row in schedule.codes]


def _early(schedule: Schedule) -> list["array[int]"]:
    """In rounds, in which each rank in turn runs its next action if its inputs are there.

    The order is that of PyTorch's `_add_send_recv`, which tries every rank in every round; here a
    rank that waits is woken by its input, so that the time is linear in the actions.
    """
    rows = _rows(schedule)
    out = [array("q") for _ in rows]
    at = [0] * len(rows)
    there = {-1}  # what needs nothing finds it there
    waits: dict[int, int] = {}
    this_round = [rank for rank, row in enumerate(rows) if row.codes]
    while this_round:
        next_round = []
        while this_round:
            rank = heappop(this_round)
            row, order, place = rows[rank], out[rank], at[rank]
            needs, end = row.needs, row.ends[place]
            lacks = needs[place] if needs[place] not in there else needs[end - 1]
            if lacks not in there:
                waits[lacks] = rank
                continue
            at[rank] = end
            order.extend(row.codes[place:end])
            while place < end:
                if (tensor := row.makes[place]) >= 0:
                    there.add(tensor)
                    if (to := row.to[place]) >= 0:
                        order.append(row.sends[place])
                        out[to].append(tensor)
                    if (woken := waits.pop(tensor, -1)) > rank:
                        heappush(this_round, woken)
                    elif woken >= 0:
                        next_round.append(woken)
                place += 1
            if end < len(needs):
                next_round.append(rank)
        heapify(next_round)
        this_round = next_round
    _refuse_stuck(schedule, waits)
    return out


def _just_in_time(schedule: Schedule) -> list["array[int]"]:
    """Each receive right before its use; earlier ones of the same sender before it, as a pair of
    ranks takes its messages in the order in which they are sent."""
    rows = _rows(schedule)
    sent: dict[tuple[int, int], list[int]] = {}
    source: dict[int, int] = {}
    for rank, row in enumerate(rows):
        for tensor, to in zip(row.makes, row.to, strict=True):
            if to >= 0:
                sent.setdefault((rank, to), []).append(tensor)
                source[tensor] = rank
    queues = {pair: iter(tensors) for pair, tensors in sent.items()}
    out = []
    for rank, row in enumerate(rows):
        order = array("q")
        received: set[int] = set()
        sends: list[int] = []
        for place, code in enumerate(row.codes):
            for need in row.needs[place : row.ends[place]]:
                if need in source and need not in received:
                    for tensor in queues[source[need], rank]:
                        order.append(tensor)
                        received.add(tensor)
                        if tensor == need:
                            break
            order.append(code)
            if row.to[place] >= 0:
                sends.append(row.sends[place])
            if not code & JOINED:
                order.extend(sends)
                sends.clear()
        out.append(order)
    return out


def _in_guessed_order(schedule: Schedule, transfer: int) -> list["array[int]"]:
    """All transfers ordered by the guessed time at which their data are sent.

    Of those at the same time a rank sends its own before it receives, whence gradients come
    first and then go down the stages, and activations up.
    """
    rows = _rows(schedule)
    ends: list[list[int]] = [[] for _ in rows]  # of the actions that ran, by code
    arriving: list[list[tuple[int, int, int, int]]] = [[] for _ in rows]
    there = {-1: 0}  # what needs nothing finds it there at once
    waits: dict[int, int] = {}
    work = list(range(len(rows)))[::-1]
    while work:
        rank = work.pop()
        row, ended = rows[rank], ends[rank]
        now = ended[-1] if ended else 0
        while (i := len(ended)) < len(row.codes):
            end = row.ends[i]
            needs = row.needs[i:end]
            missing = [n for n in needs if n not in there]
            if missing:
                waits[missing[0]] = rank
                break
            now = max(now, *map(there.__getitem__, needs))
            now += sum(_GUESS.get(c & KIND_MASK, 0) for c in row.codes[i:end])
            for place in range(i, end):
                ended.append(now)
                tensor, to = row.makes[place], row.to[place]
                if tensor < 0:
                    continue
                there[tensor] = now if to < 0 else now + transfer
                if to >= 0:
                    arriving[to].append((now, *_precedence(row.codes[place]), tensor))
                if tensor in waits:
                    work.append(waits.pop(tensor))
    _refuse_stuck(schedule, waits)
    return [
        _merged(row, ended, sorted(receives))
        for row, ended, receives in zip(rows, ends, arriving, strict=True)
    ]


def _precedence(code: int) -> tuple[int, int]:
    """The order of sends at the same time, by the action whose result is sent."""
    stage = code >> STAGE_SHIFT & STAGE_MASK
    return (1, -stage) if code & KIND_MASK == F else (0, stage)


def _merged(row: _Row, ends: list[int], receives: list[tuple[int, int, int, int]]) -> "array[int]":
    """A rank's order with its receives: each before the action during which its data are sent, and
    among the sends of that time in the order of all transfers."""
    order = array("q")
    queue = iter([*receives, (ends[-1] + 1 if ends else 0, 0, 0, -1)])
    upcoming = next(queue)
    sends: list[tuple[int, int, int, int]] = []
    for code, own, end in zip(row.codes, row.sends, ends, strict=True):
        while upcoming[0] < end:
            order.append(upcoming[3])
            upcoming = next(queue)
        order.append(code)
        if own >= 0:
            sends.append((end, *_precedence(code), own))
        if not code & JOINED:
            for send in sorted(sends):
                while upcoming < send:
                    order.append(upcoming[3])
                    upcoming = next(queue)
                order.append(send[3])
            sends.clear()
    return order


def _refuse_stuck(schedule: Schedule, waits: dict[int, int]) -> None:
    """Raises InputError if any rank still waits for a tensor."""
    if waits:
        tensor, rank = next(iter(waits.items()))
        takes = tensor & ~KIND_MASK | (F if tensor & KIND_MASK == RECV_F else B)
        raise InputError(
            f"{schedule.name or 'the schedule'} can never finish: rank {rank} waits for ever for "
            f"the input of {unpack(takes)}; `unbubble schedule check` names every fault"
        )
