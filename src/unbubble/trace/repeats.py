"""Repeats: where a backward runs forwards again (recompute), told from autograd's operations.

The engine runs a backward with the recording of gradients off; what runs a forward again turns it
on, and then the profiler numbers the operations (`Sequence number`, `Fwd thread id` 0) as in any
forward. So within an operation of the engine these are a forward run again:

    use_reentrant=True    CheckpointFunctionBackward [F F F F [the engine: B B B B]]
    use_reentrant=False   AddmmBackward0 [F F F F, its own operations] B B B
    nested                CheckpointFunctionBackward [F F [B, CheckpointFunctionBackward [F F [B]]]]

What follows each other is one repeat, from the start of its first operation to the end of its
last; the next operation of the engine ends it. Links of autograd cannot serve instead: without
reentrance the repeated forward's own graph is never used, and nothing links to it.

Two things look alike and are told apart or not told at all. A function of one's own that a backward
applies (an all-to-all's backward is one) is numbered even though nothing is recorded: alone it is a
repeat only where a backward links to it. And a backward of a backward records its own operations.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from unbubble.trace.intervals import Interval, clip, length, union

NOTHING, ENGINE, RECORDED, APPLIED, DOUBLE, COMPILED = range(6)
"""What an operation is within one of the engine: nothing of interest, another of the engine's, one
recorded for gradients, a numbered function that may not be, a backward that is recorded, and a
compiled backward, which hides what it repeats."""
NUMBERED_FORWARD, NUMBERED_BACKWARD = 1, 2
"""How the profiler numbers operations: as a forward's, or as the backward of one; 0 is neither."""


NAMED = ("autograd::engine::", "CompiledFunctionBackward")
"""How the names of the engine's operations and of compiled backwards begin."""
_LATE = 1 << 62


class Within(NamedTuple):
    """Something that stands within an operation of the engine."""

    start: int
    end: int
    what: int


def what_of(name: str, side: int) -> int:
    """What an operation is, should it stand within one of the engine."""
    if side == NUMBERED_FORWARD:
        if name.startswith("c10d::"):
            return NOTHING
    elif name.startswith(NAMED):
        return ENGINE if name.startswith(NAMED[0]) else COMPILED
    else:
        return NOTHING
    if "::" not in name:
        return APPLIED
    return DOUBLE if "_backward" in name else RECORDED


@dataclass(frozen=True)
class Repeats:
    """All repeats of a trace: disjoint intervals by thread, ascending."""

    by_thread: Mapping[Any, Sequence[Interval]]
    doubtful: Sequence[int] = ()
    """Starts of what may be one, ascending."""
    hidden: Sequence[int] = ()
    """Starts of compiled backwards, ascending."""

    @classmethod
    def of(
        cls,
        inside: Mapping[Any, Sequence[Within]],
        engine: Mapping[Any, Sequence[int]],
        linked: Sequence[int],
    ) -> "Repeats":
        """The repeats among what stands `inside` the engine's operations, by thread.

        `engine`: when the outermost of these start. `linked`: when the forward operations ran that
        autograd has a backward for, ascending.
        """
        by_thread: dict[Any, list[Interval]] = {}
        doubtful: list[int] = []
        for thread, rows in inside.items():
            stops = [Within(start, _LATE, ENGINE) for start in engine.get(thread, ())]
            found: list[Interval] = []
            for run in _runs([*rows, *stops]):
                start, end = run[0].start, max(row.end for row in run)
                kinds = {row.what for row in run}
                if DOUBLE not in kinds and (RECORDED in kinds or any_within(linked, start, end)):
                    found.append((start, end))
                else:
                    doubtful.append(start)
            if found:
                by_thread[thread] = union(found)
        hidden = [row.start for rows in inside.values() for row in rows if row.what == COMPILED]
        return cls(by_thread, sorted(doubtful), sorted(hidden))

    @cached_property
    def merged(self) -> list[Interval]:
        """Those of all threads."""
        return union(one for rows in self.by_thread.values() for one in rows)

    def length(self, low: int, high: int) -> int:
        """How much of low … high is repeats, on any thread."""
        return length(clip(self.merged, low, high))


def covers(rows: Sequence[Interval], time: int) -> bool:
    """Whether a time lies in one of the disjoint, ascending intervals."""
    i = bisect_right(rows, time, key=_start)
    return i > 0 and time < rows[i - 1][1]


def any_within(times: Sequence[int], low: int, high: int) -> bool:
    """Whether one of the ascending times lies in low … high, the latter left out."""
    return bisect_left(times, low) < bisect_left(times, high)


def _runs(rows: Iterable[Within]) -> list[list[Within]]:
    """What runs forward between two operations of the engine."""
    runs: list[list[Within]] = []
    ended = True
    for row in sorted(rows, key=lambda row: (row.start, -row.end)):
        if row.what in (ENGINE, COMPILED):
            ended = True
        elif ended:
            runs.append([row])
            ended = False
        else:
            runs[-1].append(row)
    return runs


def _start(interval: Interval) -> int:
    return interval[0]
