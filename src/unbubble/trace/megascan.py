"""MegaScan (MegatronApp) JSON: forwards and backwards of all ranks, many iterations, one clock.

Begin and end events nest by (pid, tid); the end carries microbatch, model_chunk and pp_rank. An
instant `reduce` follows a rank's last backward, `iteration end` the optimizer. Transfers are not
recorded.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from unbubble.action import Action, Kind
from unbubble.errors import InputError
from unbubble.trace.assembly import FROM_RANKS
from unbubble.trace.events import Args, Event, EventFile
from unbubble.trace.intervals import length, union
from unbubble.trace.names import NO_STAGE
from unbubble.trace.observed import About, Busy, Doubt, Observed, RankSteps, Seen
from unbubble.trace.sources import OtherKind

KINDS = {"forward": Kind.F, "backward": Kind.B}
MAX_COUNT = 1 << 20
MAX_US = 1e15
NO_TRANSFERS = Doubt(
    About.TRANSFERS, "this kind of trace records none, so communication cannot be told apart"
)
ONE_TAIL = Doubt(
    About.TAIL,
    "gradient reduction and optimizer are one stretch of the trace, shown as reduction",
)


class Done(NamedTuple):
    """One action; ns."""

    rank: int
    iteration: int
    position: int
    chunk: int
    microbatch: int
    kind: Kind
    start: int
    end: int


class Instant(NamedTuple):
    rank: int
    iteration: int
    name: str
    at: int


def read(source: str) -> list[RankSteps]:
    """Every rank (a pid of the file), with all its iterations.

    Raises InputError for events that do not pair up and for arguments that are no counts.
    """
    done, instants = _events(source)
    if not done:
        raise OtherKind(f"{source}: no forward or backward has begun and ended in it")
    ranks = 1 + max(one.position for one in done)
    steps: dict[int, dict[int, list[Done]]] = defaultdict(lambda: defaultdict(list))
    for one in done:
        steps[one.rank][one.iteration].append(one)
    marks: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    for instant in instants:
        marks[instant.rank, instant.iteration][instant.name] = instant.at
    return [
        RankSteps(
            rank=rank,
            source=f"{source} (pid {rank})",
            steps=tuple(
                _observed(source, rank, n, steps[rank][n], marks[rank, n], ranks)
                for n in sorted(steps[rank])
            ),
        )
        for rank in sorted(steps)
    ]


def _events(source: str) -> tuple[list[Done], list[Instant]]:
    file = EventFile(source)
    open_: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    done, instants, count = [], [], 0
    for block in file.blocks():
        for event in block:
            where = f"{source}: event {count} ({event.name[:40]!r})"
            count += 1
            if event.ph not in ("B", "E", "i"):
                continue
            if not -MAX_US < event.ts < MAX_US:
                raise InputError(f"{where} has ts {event.ts:g}; microseconds were expected")
            if event.ph == "B":
                open_[str(event.pid), str(event.tid)].append(event)
            elif event.ph == "i":
                args = event.args or Args()
                rank = _count(event.pid, where, "pid")
                turn = _count(args.iteration, where, "iteration")
                instants.append(Instant(rank, turn, event.name, round(event.ts * 1000)))
            else:
                stack = open_[str(event.pid), str(event.tid)]
                if not stack or stack[-1].name != event.name:
                    raise InputError(f"{where} ends what has not begun")
                begun = stack.pop()
                if event.name in KINDS:
                    done.append(_done(begun, event, where))
    if left := [stack[-1] for stack in open_.values() if stack and stack[-1].name in KINDS]:
        raise InputError(f"{source}: {left[0].name} of pid {left[0].pid} never ends; it is cut off")
    return done, instants


def _done(begun: Event, ended: Event, where: str) -> Done:
    args = ended.args or Args()
    if ended.ts < begun.ts:
        raise InputError(f"{where} ends before it begins")
    return Done(
        _count(ended.pid, where, "pid"),
        _count(args.iteration, where, "iteration"),
        _count(args.pp_rank, where, "pp_rank"),
        _count(args.model_chunk if args.model_chunk is not None else 0, where, "model_chunk"),
        _count(args.microbatch, where, "microbatch"),
        KINDS[ended.name],
        round(begun.ts * 1000),
        round(ended.ts * 1000),
    )


def _count(value: Any, where: str, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_COUNT:
        raise InputError(f"{where} has {what} {value!r}; a count was expected")
    return value


def _observed(
    source: str,
    rank: int,
    iteration: int,
    done: Sequence[Done],
    marks: dict[str, int],
    ranks: int,
) -> Observed:
    ordered = sorted(done, key=lambda one: one.start)
    last = max(one.end for one in ordered)
    begin, finish = ordered[0].start, max(marks.get("iteration end", last), last)
    tail, unknown = [], [NO_TRANSFERS]
    if finish > last:
        reduce = Action(Kind.REDUCE_GRAD, NO_STAGE)
        start = min(max(marks.get("reduce", last), last), finish)
        tail.append(Seen(reduce, start, finish, name="reduce", group=f"reduce of {iteration}"))
        unknown.append(ONE_TAIL)
    working = length(union((one.start, one.end) for one in ordered))
    return Observed(
        rank=rank,
        source=source,
        step=iteration,
        begin=begin,
        finish=finish,
        busy=Busy(working, 0, finish - begin - working),
        host=source,
        actions=tuple(
            Seen(
                Action(one.kind, one.chunk * ranks + one.position, one.microbatch),
                one.start,
                one.end,
            )
            for one in ordered
        ),
        tail=tuple(tail),
        recovered=(FROM_RANKS,),
        unknown=tuple(unknown),
    )
