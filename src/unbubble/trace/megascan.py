"""MegaScan (MegatronApp) JSON: the CUDA events of all ranks, many iterations.

A rank is a (pid, tid). Its times count from its own first event of an iteration, behind a barrier,
so that every rank has a clock of its own. Forwards and backwards carry microbatch, model_chunk and
pp_rank at their end; an instant `reduce` follows a rank's last backward, `iteration end` the
optimizer; transfers are not recorded. Newer files have complete events with dp_rk, pp_rk, tp_rk,
micro_batch_index, and of Megatron's 1F1B the transfers, with the bytes that they moved as `data`.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from math import isnan
from typing import Any, NamedTuple

from unbubble.action import Action, Kind
from unbubble.errors import InputError
from unbubble.trace.assembly import FROM_RANKS
from unbubble.trace.events import Args, Event, EventFile
from unbubble.trace.intervals import Interval, clip, length, outside, union
from unbubble.trace.names import NO_STAGE
from unbubble.trace.observed import About, Busy, Doubt, HalfTransfer, Observed, RankSteps, Seen
from unbubble.trace.sources import OtherKind

ACTIONS = {
    "forward": Kind.F,
    "forward-warmup": Kind.F,
    "backward": Kind.B,
    "backward-cooldown": Kind.B,
}
TOWARDS = {
    "recv-warmup": -1,
    "recv-extra": -1,
    "exchange-prev": -1,
    "send-extra": -1,
    "send-cooldown": -1,
    "send-warmup": 1,
    "exchange-next": 1,
    "recv-cooldown": 1,
}
"""The names of transfers, each with the previous or the next rank of the pipeline."""
WITHIN = {
    "_reduce",
    "_gather_along_first_dim",
    "_gather_along_last_dim",
    "_reduce_scatter_along_first_dim",
    "_reduce_scatter_along_last_dim",
}
"""The collectives of tensor parallelism."""
TAIL = {
    "grad-sync": Kind.REDUCE_GRAD,
    "allreduce": Kind.REDUCE_GRAD,
    "optimizer": Kind.OPTIMIZER,
}
KEPT = {*ACTIONS, *TOWARDS, *WITHIN, *TAIL}
MAX_COUNT = 1 << 20
MAX_US = 1e15
NO_TRANSFERS = Doubt(
    About.TRANSFERS, "this kind of trace records none, so communication cannot be told apart"
)
ONE_TAIL = Doubt(
    About.TAIL,
    "gradient reduction and optimizer are one stretch of the trace, shown as reduction",
)
WAITS = Doubt(
    About.TAIL,
    "reductions hold the waits for other replicas, and the optimizer is taken to begin with the "
    "last rank's, as the norm of all gradients needs it",
)


class Range(NamedTuple):
    """What a rank was at from `start` to `end`, in ns; `place` names the event for people."""

    name: str
    start: int
    end: int
    args: Args
    place: str

    @property
    def position(self) -> int:
        """The rank's place in the pipeline."""
        if self.args.pp_rk is not None:
            return _count(self.args.pp_rk, self.place, "pp_rk")
        return _count(self.args.pp_rank, self.place, "pp_rank")


class Iteration:
    """One rank's: its ranges, actions apart, and when its instants were."""

    def __init__(self) -> None:
        self.actions: list[Range] = []
        self.others: list[Range] = []
        self.instants: dict[str, int] = {}


Rank = tuple[int, int]
"""pid and tid."""


def read(source: str) -> list[RankSteps]:
    """Every rank of the file, with all its iterations.

    Raises InputError for events that do not pair up and for arguments that are no counts.
    """
    found = {
        rank: {number: one for number, one in sorted(own.items()) if one.actions}
        for rank, own in sorted(_iterations(source).items())
    }
    found = {rank: own for rank, own in found.items() if own}
    every = [one for own in found.values() for it in own.values() for one in it.actions]
    if not every:
        raise OtherKind(f"{source}: no forward or backward has begun and ended in it")
    ranks = 1 + max(one.position for one in every)
    threads = sorted({tid for _, tid in found})
    replica_of = {rank: _replica(rank, own) for rank, own in found.items()}
    replicas = {one: i for i, one in enumerate(sorted(set(replica_of.values())))}
    steps = []
    orders: dict[tuple[int, int], list[list[Action]]] = {}
    for (pid, tid), own in found.items():
        number = pid * len(threads) + threads.index(tid)
        replica = replicas[replica_of[pid, tid]] if len(replicas) > 1 else None
        observed = tuple(_observed(source, number, n, own[n], ranks, replica) for n in own)
        named = f"pid {pid}" if len(threads) == 1 else f"pid {pid}, tid {tid}"
        order = [[seen.action for seen in one.actions] for one in observed]
        place = replica_of[pid, tid][0], next(iter(own.values())).actions[0].position
        if orders.setdefault(place, order) != order:
            raise InputError(
                f"{source}: {named} has another order of actions than the rank beside it, which "
                "ranks of tensor parallelism cannot have; are these several runs? Give one"
            )
        steps.append(RankSteps(rank=number, source=f"{source} ({named})", steps=observed))
    return steps


def _replica(rank: Rank, own: dict[int, Iteration]) -> tuple[int, int]:
    """Its places in data and tensor parallelism: in older files pids go on from pipeline to
    pipeline, and tids are the second."""
    one = next(iter(own.values())).actions[0]
    data, tensor = one.args.dp_rk, one.args.tp_rk
    return (
        rank[0] - one.position if data is None else _count(data, one.place, "dp_rk"),
        rank[1] if tensor is None else _count(tensor, one.place, "tp_rk"),
    )


def _iterations(source: str) -> dict[Rank, dict[int, Iteration]]:
    found: dict[Rank, dict[int, Iteration]] = defaultdict(lambda: defaultdict(Iteration))
    open_: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for count, event in enumerate(chain.from_iterable(EventFile(source).blocks())):
        place = f"{source}: event {count} ({event.name[:40]!r})"
        if event.ph not in ("B", "E", "X", "i"):
            continue
        if isnan(event.ts) and event.pid is None:
            raise OtherKind(
                f"{source}: what one rank recorded; MegaScan's aggregate.py makes of all ranks' "
                "files the one to read"
            )
        if not -MAX_US < event.ts < MAX_US:
            raise InputError(f"{place} has ts {event.ts:g}; microseconds were expected")
        begin, end = event.ts, event.ts
        if event.ph == "B":
            open_[str(event.pid), str(event.tid)].append(event)
            continue
        if event.ph == "E":
            stack = open_[str(event.pid), str(event.tid)]
            if not stack or stack[-1].name != event.name:
                raise InputError(f"{place} ends what has not begun")
            begin = stack.pop().ts
        if event.ph != "i" and event.name not in KEPT:
            continue
        if event.ph == "X":
            end = begin + event.dur
        if not begin <= end < 2 * MAX_US:
            raise InputError(f"{place} ends before it begins")
        args = event.args or Args()
        rank = _count(event.pid, place, "pid"), _count(event.tid or 0, place, "tid")
        own = found[rank][_count(args.iteration, place, "iteration")]
        if event.ph == "i":
            own.instants[event.name] = round(begin * 1000)
        else:
            kind = own.actions if event.name in ACTIONS else own.others
            kind.append(Range(event.name, round(begin * 1000), round(end * 1000), args, place))
    if left := [stack[-1] for stack in open_.values() if stack and stack[-1].name in ACTIONS]:
        raise InputError(f"{source}: {left[0].name} of pid {left[0].pid} never ends; it is cut off")
    return found


def _count(value: Any, place: str, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_COUNT:
        raise InputError(f"{place} has {what} {value!r}; a count was expected")
    return value


def _observed(
    source: str, rank: int, number: int, one: Iteration, ranks: int, replica: int | None
) -> Observed:
    actions = sorted(one.actions, key=lambda each: each.start)
    transfers = sorted(_transfers(one.others, actions[0].position, ranks), key=lambda e: e.start)
    within = union((each.start, each.end) for each in one.others if each.name in WITHIN)
    seen = [_seen(each, ranks, within) for each in actions]
    tail, unknown = _tail(number, one, max(each.end for each in seen))
    sends, receives = _halves(transfers, [each.end for each in seen])
    busy = union((each.start, each.end) for each in seen)
    moving = union((each.start, each.end) for each in transfers)
    whole = union([*busy, *moving, *((each.start, each.end) for each in tail)])
    begin, finish = whole[0][0], whole[-1][1]
    inside = sum(each.communication for each in seen)
    working, talking = length(busy) - inside, outside(moving, busy) + inside
    return Observed(
        rank=rank,
        source=source,
        step=number,
        begin=begin,
        finish=finish,
        busy=Busy(working, talking, finish - begin - working - talking),
        actions=tuple(seen),
        tail=tuple(tail),
        sends=tuple(sends),
        receives=tuple(receives),
        recovered=(FROM_RANKS,),
        unknown=(*unknown,) if transfers or ranks == 1 else (NO_TRANSFERS, *unknown),
        replica=replica,
    )


def _seen(one: Range, ranks: int, within: Sequence[Interval]) -> Seen:
    args, place = one.args, one.place
    chunk = _count(args.model_chunk or 0, place, "model_chunk")
    new = args.micro_batch_index is not None
    microbatch = args.micro_batch_index if new else args.microbatch
    action = Action(
        ACTIONS[one.name],
        chunk * ranks + one.position,
        _count(microbatch, place, "micro_batch_index" if new else "microbatch"),
    )
    return Seen(action, one.start, one.end, length(clip(within, one.start, one.end)))


def _transfers(others: Sequence[Range], position: int, ranks: int) -> Iterator[Range]:
    """The ranges in which something moved: a first or last rank has empty ones as well. `data`
    beyond the last rank in the file shows that a later one is missing."""
    for one in others:
        if one.name in TOWARDS:
            there = 0 <= position + TOWARDS[one.name] < ranks
            if there or one.args.data is not None:
                yield one


def _halves(
    transfers: Sequence[Range], ends: Sequence[int]
) -> tuple[list[HalfTransfer], list[HalfTransfer]]:
    """Sends and receives in order. In an exchange both move, and it lasts until both have. What
    is sent is there when the action before it has ended: MegaScan moves a range's start to where
    its counterpart's length would have it begin."""
    sends, receives = [], []
    for one in transfers:
        before = bisect_right(ends, one.start)
        called = ends[before - 1] if before else one.start
        if not one.name.startswith("recv"):
            action = Action(Kind.SEND_F, NO_STAGE, 0)
            sends.append(HalfTransfer(action, called, one.start, one.end, True))
        if not one.name.startswith("send"):
            action = Action(Kind.RECV_F, NO_STAGE, 0)
            receives.append(HalfTransfer(action, one.start, one.start, one.end, True))
    return sends, receives


def _tail(number: int, one: Iteration, last: int) -> tuple[list[Seen], list[Doubt]]:
    """What follows the actions, which end at `last`; and what cannot be told of it."""
    ranges = sorted((each for each in one.others if each.name in TAIL), key=lambda e: e.start)
    tail = []
    for each in ranges:
        kind = TAIL[each.name]
        group = f"optimizer of {number}" if kind is Kind.OPTIMIZER else ""
        tail.append(Seen(Action(kind, NO_STAGE), each.start, each.end, name=each.name, group=group))
    if tail:
        return tail, [WAITS]
    finish = one.instants.get("iteration end", last)
    if finish <= last:
        return [], []
    start = min(max(one.instants.get("reduce", last), last), finish)
    reduce = Action(Kind.REDUCE_GRAD, NO_STAGE)
    return [Seen(reduce, start, finish, name="reduce", group=f"reduce of {number}")], [ONE_TAIL]
