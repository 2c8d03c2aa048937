"""Times: how long actions take with given costs, in tables by kind and placed stage."""

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from unbubble.action import Kind
from unbubble.costs import TIMES, Costs, Duration
from unbubble.errors import InputError
from unbubble.schedule.order import Schedule
from unbubble.simulate import kernel

MAX_TOTAL_TICKS = 1 << 61
"""No step is longer, so that its ends add up in 64 bits."""

PARTS = ("communication", "overhead", "recompute")


def parts_of(costs: Costs) -> tuple[str, ...]:
    """Which of PARTS any action's time has."""
    durations = [getattr(row, name) for row in costs.stages for name in TIMES]
    _, communication, overhead = map(any, zip(*filter(None, durations), strict=True))
    there = {
        "communication": communication,
        "overhead": overhead or costs.action_overhead > 0,
        "recompute": any(
            row.recompute.compute or row.recompute_weight.compute for row in costs.stages
        ),
    }
    return tuple(part for part in PARTS if there[part])


def time_tables(
    schedule: Schedule, costs: Costs, part: str = "total"
) -> tuple["array[int]", "array[int]"]:
    """Ticks by kind and placed stage (−1: unknown), and of overlapped pairs by forward stage.

    `part`: "total", or what of it is one of PARTS (recompute: its kernels).
    """
    placement = schedule.placement
    rank_of, stages = placement.rank_of, len(placement.rank_of)
    around = costs.action_overhead if part in ("total", "overhead") else 0
    speeds = [costs.speed.get(rank) for rank in rank_of]
    index = {"communication": 1, "overhead": 2}.get(part, 0)

    def column(durations: Sequence[Duration | None]) -> list[int]:
        """The part of one duration by stage of the model, on the stages' ranks."""
        if part == "total":
            times = [-1 if d is None else sum(d) for d in durations]
        else:
            times = [-1 if d is None else d[index] for d in durations]
        times *= placement.copies
        if costs.speed:
            pairs = zip(times, speeds, strict=True)
            times = [t if t < 0 or speed is None else round(t * speed) for t, speed in pairs]
        return [time if time < 0 else time + around for time in times] if around else times

    rows = [[0] * stages for _ in Kind]
    for kind in (Kind.F, Kind.B, Kind.I, Kind.W):
        if part != "recompute":
            rows[kind] = column([row.of(kind) for row in costs.stages])
        elif kind is not Kind.F:
            rows[kind] = column([row.recomputed(kind) for row in costs.stages])
    if part == "recompute":  # a pair's own time includes it, unknown how much
        pairs = [-1] * stages
    else:
        pairs = column([row.overlapped for row in costs.stages])
    if part == "total":
        tail = costs.tail
        held, first_of = Counter(rank_of), {r: s for s, r in reversed([*enumerate(rank_of)])}
        rows[Kind.SEND_F] = rows[Kind.SEND_B] = [costs.send_host] * stages
        rows[Kind.RECV_F] = rows[Kind.RECV_B] = [costs.recv_host] * stages
        rows[Kind.REDUCE_GRAD] = [  # a rank's share by stage, the odd ticks on its first
            tail.reduce // held[r] + (tail.reduce % held[r] if first_of[r] == s else 0)
            for s, r in enumerate(rank_of)
        ]
        rows[Kind.CLIP] = [tail.clip] * stages
        rows[Kind.OPTIMIZER] = [
            tail.optimizer if speed is None else round(tail.optimizer * speed) for speed in speeds
        ]
    fits(max(map(max, [*rows, pairs])))
    return array("q", chain.from_iterable(rows)), array("q", pairs)


def fits(ticks: int) -> int:
    """The ticks, if a step can add them up; else raises InputError."""
    if ticks >= MAX_TOTAL_TICKS:
        raise InputError("the times are too long to add up exactly; use a coarser unit")
    return ticks


def check_total(duration: "array[int]", lag: "array[int]") -> None:
    """Raises InputError for a negative time, and where the end of a step might not fit into 64
    bits."""
    longest, furthest = kernel.largest(duration), kernel.largest(lag)
    if longest < 0 or furthest < 0:
        raise InputError("a time is negative; every time is at least 0")
    at_most = (longest + furthest) * len(duration)
    if at_most >= MAX_TOTAL_TICKS and sum(duration) + sum(lag) >= MAX_TOTAL_TICKS:
        raise InputError("the times are too long to add up exactly; use a coarser unit")
