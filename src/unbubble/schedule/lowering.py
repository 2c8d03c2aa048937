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
    unpack,
)
from unbubble.errors import InputError
from unbubble.schedule.order import Schedule

RECEIVES = ("early", "just-in-time", "smart", "rendezvous")

_STAGE = 1 << STAGE_SHIFT
_PLAIN = ~(KIND_MASK | JOINED)
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


class _Routes:
    """What an action needs and who takes its result, by the code's own arithmetic.

    A tensor goes by the code of the action that takes it: F, or B for either kind of backward.
    """

    def __init__(self, schedule: Schedule):
        placement = schedule.placement
        stages = range(len(placement.rank_of))
        self.next_rank = placement.next_rank
        self.previous_rank = placement.previous_rank
        self.first = [placement.is_first(s) for s in stages]
        self.last = [placement.is_last(s) for s in stages]

    def need(self, code: int) -> int:
        """The tensor that an action waits for; −1: none."""
        kind = code & KIND_MASK
        stage = code >> STAGE_SHIFT & STAGE_MASK
        if kind == F:
            return -1 if self.first[stage] else code & _PLAIN
        if kind <= I:  # B or I
            return -1 if self.last[stage] else code & _PLAIN | B
        return -1

    def made(self, code: int) -> tuple[int, int]:
        """The tensor that an action makes and the rank that it is sent to; −1: none, not sent."""
        kind = code & KIND_MASK
        stage = code >> STAGE_SHIFT & STAGE_MASK
        if kind == F and not self.last[stage]:
            return (code & _PLAIN) + _STAGE, self.next_rank[stage]
        if B <= kind <= I and not self.first[stage]:
            return (code & _PLAIN | B) - _STAGE, self.previous_rank[stage]
        return -1, -1


def _send(code: int) -> int:
    """The send of an action's result."""
    return code & _PLAIN | (SEND_F if code & KIND_MASK == F else SEND_B)


def _receive(tensor: int) -> int:
    """The receive of a tensor."""
    return tensor & _PLAIN | (RECV_F if tensor & KIND_MASK == F else RECV_B)


def _early(schedule: Schedule) -> list["array[int]"]:
    """In rounds, in which each rank in turn runs its next action if its inputs are there.

    The order is that of PyTorch's `_add_send_recv`, which tries every rank in every round; here a
    rank that waits is woken by its input, so that the time is linear in the actions.
    """
    routes = _Routes(schedule)
    rows = [row.tolist() for row in schedule.codes]
    out = [array("q") for _ in rows]
    at = [0] * len(rows)
    there: set[int] = set()
    waits: dict[int, int] = {}
    this_round = [rank for rank, row in enumerate(rows) if row]
    while this_round:
        next_round = []
        while this_round:
            rank = heappop(this_round)
            row, i = rows[rank], at[rank]
            parts = row[i : i + 2] if row[i] & JOINED else row[i : i + 1]
            missing = [n for c in parts if (n := routes.need(c)) >= 0 and n not in there]
            if missing:
                waits[missing[0]] = rank
                continue
            out[rank].extend(parts)
            for code in parts:
                tensor, to = routes.made(code)
                if tensor < 0:
                    continue
                there.add(tensor)
                if to >= 0:
                    out[rank].append(_send(code))
                    out[to].append(_receive(tensor))
                if (woken := waits.pop(tensor, -1)) > rank:
                    heappush(this_round, woken)
                elif woken >= 0:
                    next_round.append(woken)
            at[rank] = i + len(parts)
            if at[rank] < len(row):
                next_round.append(rank)
        heapify(next_round)
        this_round = next_round
    _refuse_stuck(schedule, waits)
    return out


def _just_in_time(schedule: Schedule) -> list["array[int]"]:
    """Each receive right before its use; earlier ones of the same sender before it, as a pair of
    ranks takes its messages in the order in which they are sent."""
    routes = _Routes(schedule)
    sent: dict[tuple[int, int], list[int]] = {}
    source: dict[int, int] = {}
    for rank, row in enumerate(schedule.codes):
        for code in row:
            tensor, to = routes.made(code)
            if to >= 0:
                sent.setdefault((rank, to), []).append(tensor)
                source[tensor] = rank
    queues = {pair: iter(tensors) for pair, tensors in sent.items()}
    out = []
    for rank, row in enumerate(schedule.codes):
        order = array("q")
        received: set[int] = set()
        sends: list[int] = []
        for i, code in enumerate(row):
            parts = row[i : i + 2] if code & JOINED else (code,)
            for need in map(routes.need, parts):
                if need in source and need not in received:
                    for tensor in queues[source[need], rank]:
                        order.append(_receive(tensor))
                        received.add(tensor)
                        if tensor == need:
                            break
            order.append(code)
            if routes.made(code)[1] >= 0:
                sends.append(_send(code))
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
    routes = _Routes(schedule)
    rows = [row.tolist() for row in schedule.codes]
    ends: list[list[int]] = [[] for _ in rows]  # of the actions that ran, by code
    arriving: list[list[tuple[int, int, int, int]]] = [[] for _ in rows]
    there: dict[int, int] = {}
    waits: dict[int, int] = {}
    work = list(range(len(rows)))[::-1]
    while work:
        rank = work.pop()
        row, ended = rows[rank], ends[rank]
        now = ended[-1] if ended else 0
        while (i := len(ended)) < len(row):
            parts = row[i : i + 2] if row[i] & JOINED else row[i : i + 1]
            needs = [n for n in map(routes.need, parts) if n >= 0]
            missing = [n for n in needs if n not in there]
            if missing:
                waits[missing[0]] = rank
                break
            now = max([now, *(there[n] for n in needs)])
            now += sum(_GUESS.get(c & KIND_MASK, 0) for c in parts)
            for code in parts:
                ended.append(now)
                tensor, to = routes.made(code)
                if tensor < 0:
                    continue
                there[tensor] = now if to < 0 else now + transfer
                if to >= 0:
                    arriving[to].append((now, *_precedence(code), _receive(tensor)))
                if tensor in waits:
                    work.append(waits.pop(tensor))
    _refuse_stuck(schedule, waits)
    return [
        _merged(row, ended, sorted(receives), routes)
        for row, ended, receives in zip(rows, ends, arriving, strict=True)
    ]


def _precedence(code: int) -> tuple[int, int]:
    """The order of sends at the same time, by the action whose result is sent."""
    stage = code >> STAGE_SHIFT & STAGE_MASK
    return (1, -stage) if code & KIND_MASK == F else (0, stage)


def _merged(
    row: list[int],
    ends: list[int],
    receives: list[tuple[int, int, int, int]],
    routes: _Routes,
) -> "array[int]":
    """A rank's order with its receives: each before the action during which its data are sent, and
    among the sends of that time in the order of all transfers."""
    order = array("q")
    queue = iter([*receives, (ends[-1] + 1 if ends else 0, 0, 0, -1)])
    upcoming = next(queue)
    sends: list[tuple[int, int, int, int]] = []
    for code, end in zip(row, ends, strict=True):
        while upcoming[0] < end:
            order.append(upcoming[3])
            upcoming = next(queue)
        order.append(code)
        if routes.made(code)[1] >= 0:
            sends.append((end, *_precedence(code), _send(code)))
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
        raise InputError(
            f"{schedule.name or 'the schedule'} can never finish: rank {rank} waits for ever for "
            f"the input of {unpack(tensor)}; `unbubble schedule check` names every fault"
        )
