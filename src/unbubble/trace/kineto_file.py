"""PyTorch's profiler (Kineto) JSON: one file a rank, plain or gzip.

`KinetoTrace` reads a file once and keeps what matters: ranges, operations of each host thread that
stand in no other operation, kernels with their launches, and the autograd links of forward and
backward.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from unbubble.action import Action
from unbubble.errors import InputError
from unbubble.trace.events import Event, EventFile
from unbubble.trace.intervals import Interval, clip, length, outside, union
from unbubble.trace.names import (
    Named,
    action_named,
    is_communication,
    is_talk,
    step_named,
    transfer_named,
)
from unbubble.trace.observed import Busy

COMPUTE, COLLECTIVE, P2P = 0, 1, 2
"""What a kernel or a host operation is: work, communication, or maybe a pipeline transfer."""

MAX_US = 1e16
_P2P_WORDS = {"send", "recv", "isend", "irecv", "coalesced", "batch_isend_irecv"}
_OP, _MARK, _KERNEL, _LAUNCH, _FLOW = range(5)
_CATEGORIES = {
    "cpu_op": _OP,
    "Operator": _OP,
    "user_annotation": _MARK,
    "kernel": _KERNEL,
    "Kernel": _KERNEL,
    "gpu_memcpy": _KERNEL,
    "Memcpy": _KERNEL,
    "gpu_memset": _KERNEL,
    "Memset": _KERNEL,
    "cuda_runtime": _LAUNCH,
    "cuda_driver": _LAUNCH,
    "Runtime": _LAUNCH,
    "fwdbwd": _FLOW,
    "forward_backward": _FLOW,
}
"""Categories of today's and of older profilers; others are skipped."""


class Mark(NamedTuple):
    """A range on a host thread; times in ns from the file's base."""

    start: int
    end: int
    name: str
    thread: Any


class Op(NamedTuple):
    """An outermost operation of a host thread."""

    start: int
    end: int
    backward: bool
    transfer: str
    """`send` or `recv` for point-to-point posts, `collective` for others, `inner` for what every
    one of them does, else empty."""


Timed = TypeVar("Timed", Mark, Op)


class Kernel(NamedTuple):
    """Device work; `launched` is the host's launch of it (its own start where that is unknown)."""

    start: int
    end: int
    kind: int
    launched: int


class Window(NamedTuple):
    """One step on the host; `number` is the profiler's, None where it counted none."""

    number: int | None
    begin: int
    end: int


class KinetoTrace:
    """One rank's trace file."""

    def __init__(self, path: str | Path):
        self.source = str(path)
        self.marks: list[Mark] = []
        self.ops: dict[Any, list[Op]] = {}
        self._flows: tuple[dict[Any, int], dict[Any, int]] = {}, {}
        self._launches: dict[int, int] = {}
        self._kernels: list[tuple[int, int, int, Any]] = []
        self._kinds: dict[str, int] = {}
        file = EventFile(path)
        for block in file.blocks():
            self._take(block)
        self.head = file.head
        self.count = file.count
        self.marks.sort(key=lambda mark: (mark.start, -mark.end))
        self.ops = {thread: _outermost(ops) for thread, ops in self.ops.items()}

    def _take(self, events: Iterable[Event]) -> None:
        wanted = _CATEGORIES
        for event in events:
            category = wanted.get(event.cat)
            if category is None:
                continue
            ts, dur = event.ts, event.dur
            if not (-MAX_US < ts < MAX_US and 0 <= dur < MAX_US):
                raise InputError(
                    f"{self.source}: {event.name[:40]!r} has ts {ts:g} and dur {dur:g}; a time in "
                    "µs was expected, and a dur of at least 0"
                )
            start = round(ts * 1000)
            if category == _FLOW:
                self._flows[event.ph != "s"][_hashable(event.id)] = start
            elif event.ph == "X":
                end = start + round(dur * 1000)
                if category == _OP:
                    self._take_op(event, start, end)
                elif category == _KERNEL:
                    kind, args = self._kernel_kind(event), event.args
                    self._kernels.append((start, end, kind, args and args.correlation))
                elif category == _MARK:
                    self.marks.append(Mark(start, end, event.name, _hashable(event.tid)))
                elif "aunch" in event.name or "Mem" in event.name:
                    correlation = event.args and event.args.correlation
                    if isinstance(correlation, int):
                        self._launches[correlation] = start

    def _take_op(self, event: Event, start: int, end: int) -> None:
        ops = self.ops.setdefault(_hashable(event.tid), [])
        if ops and ops[-1].start <= start and end <= ops[-1].end:
            return  # within the one before
        name = event.name
        ops.append(Op(start, end, name.startswith("autograd::engine::"), _transfer(name)))

    def _kernel_kind(self, event: Event) -> int:
        if event.args is not None and isinstance(event.args.collective, str):
            return P2P if event.args.collective in _P2P_WORDS else COLLECTIVE
        kind = self._kinds.get(event.name)
        if kind is None:
            kind = COMPUTE
            if is_communication(event.name):
                kind = P2P if "SendRecv" in event.name else COLLECTIVE
            self._kinds[event.name] = kind
        return kind

    @cached_property
    def rank(self) -> int | None:
        """The rank that the file says it is of."""
        return self._distributed("rank")

    @property
    def world_size(self) -> int | None:
        """The ranks of the whole job."""
        return self._distributed("world_size")

    def _distributed(self, key: str) -> int | None:
        info = self.head.get("distributedInfo")
        value = info.get(key) if isinstance(info, dict) else None
        good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        return value if good else None

    @cached_property
    def base_ns(self) -> int:
        """What the file's times count from, in ns of the machine's clock."""
        base = self.head.get("baseTimeNanoseconds", 0)
        if isinstance(base, bool) or not isinstance(base, int) or not 0 <= base < 1 << 62:
            raise InputError(f"{self.source}: baseTimeNanoseconds is {base!r}; a time was expected")
        return base

    @cached_property
    def kernels(self) -> list[Kernel]:
        """Device work by launch."""
        launches = self._launches
        found = []
        for start, end, kind, correlation in self._kernels:
            launched = launches.get(correlation, start) if isinstance(correlation, int) else start
            if kind == P2P and self._within_collective(launched):
                kind = COLLECTIVE
            found.append(Kernel(start, end, kind, launched))
        return sorted(found, key=lambda kernel: (kernel.launched, kernel.start))

    def _within_collective(self, launched: int) -> bool:
        """Whether a collective launched it: all-to-all is made of sends and receives."""
        talks = self._collectives
        i = bisect_right(talks, (launched, 1 << 62))
        return any(start <= launched < end for start, end in talks[max(i - 8, 0) : i])

    @cached_property
    def _collectives(self) -> list[tuple[int, int]]:
        """The host ranges of collectives that are no point-to-point operation, by start."""
        found = [
            (m.start, m.end)
            for m in self.marks
            if is_talk(m.name) and not transfer_named(m.name) and "coalesced" not in m.name
        ]
        found += [
            (op.start, op.end)
            for ops in self.ops.values()
            for op in ops
            if op.transfer == "collective"
        ]
        return sorted(found)

    @cached_property
    def named(self) -> dict[Mark, Named]:
        """The ranges that name an action of the pipeline, by start."""
        return {mark: found for mark in self.marks if (found := action_named(mark.name))}

    @cached_property
    def linked(self) -> list[int]:
        """When the forward operations ran that autograd has a backward one for, ascending."""
        return sorted(self._flows[0].values())

    @cached_property
    def links(self) -> list[tuple[int, int]]:
        """For every such backward operation its time and its forward's, ascending."""
        starts, ends = self._flows
        return sorted((end, starts[key]) for key, end in ends.items() if key in starts)

    def busy(self, window: Window) -> Busy:
        """Work, communication that it does not hide, and neither, of a step: on the device, or of
        the operations on any thread where there is none."""
        low, high = window.begin, window.end
        work, talk = (clip(merged, low, high) for merged in self._at_work)
        working, talking = length(work), outside(talk, work)
        return Busy(working, talking, high - low - working - talking)

    @cached_property
    def _at_work(self) -> tuple[list[Interval], list[Interval]]:
        if self._kernels:
            work = ((k.start, k.end) for k in self.kernels if k.kind == COMPUTE)
            talk = ((k.start, k.end) for k in self.kernels if k.kind != COMPUTE)
            return union(work), union(talk)
        every = [op for ops in self.ops.values() for op in ops]
        talks = [(m.start, m.end) for m in self.marks if is_talk(m.name)]
        talks += [(op.start, op.end) for op in every if op.transfer]
        return union((op.start, op.end) for op in every if not op.transfer), union(talks)

    @cached_property
    def windows(self) -> list[Window]:
        """The steps: the profiler's, or from where actions begin to repeat, or all of the trace."""
        steps = [
            Window(number, mark.start, mark.end)
            for mark in self.marks
            if (number := step_named(mark.name)) is not None
        ]
        if steps:
            return steps
        begin, end = self.extent
        starts: list[int] = [begin]
        seen: set[Action] = set()
        for mark, (action, _) in self.named.items():
            if action in seen:
                starts.append(mark.start)
                seen.clear()
            seen.add(action)
        return [
            Window(None, start, until)
            for start, until in zip(starts, [*starts[1:], end], strict=True)
        ]

    @cached_property
    def extent(self) -> tuple[int, int]:
        """First start and last end of anything kept."""
        spans = [(m.start, m.end) for m in self.marks]
        spans += [(ops[0].start, ops[-1].end) for ops in self.ops.values() if ops]
        spans += [(k[0], k[1]) for k in self._kernels]
        if not spans:
            raise InputError(
                f"{self.source}: none of its {self.count} events is an operation, a range or a "
                "kernel of PyTorch's profiler"
            )
        return min(s for s, _ in spans), max(e for _, e in spans)

    @cached_property
    def main_thread(self) -> Any:
        """The host thread that runs the steps."""
        votes: Counter[Any] = Counter(mark.thread for mark in self.named)
        if not votes:
            votes.update(m.thread for m in self.marks if step_named(m.name) is not None)
        if not votes:
            votes.update({thread: len(ops) for thread, ops in self.ops.items()})
        return votes.most_common(1)[0][0] if votes else None

    @property
    def host_name(self) -> str:
        name = self.head.get("host_name", "")
        return name if isinstance(name, str) else ""


def starting_in(rows: Sequence[Timed], window: Window) -> Sequence[Timed]:
    """What of rows, ascending by start, starts within a window."""
    first = bisect_left(rows, window.begin, key=_start)
    return rows[first : bisect_left(rows, window.end, key=_start)]


def _start(row: Mark | Op) -> int:
    return row.start


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (int, str)) else repr(value)


def _transfer(name: str) -> str:
    if not name.startswith("c10d::"):
        return "inner" if name == "record_param_comms" else ""
    if name.startswith("c10d::send"):
        return "send"
    return "recv" if name.startswith("c10d::recv") else "collective"


def _outermost(ops: list[Op]) -> list[Op]:
    """Drops operations that stand within another of their thread."""
    kept: list[Op] = []
    last = -1
    for op in sorted(ops, key=lambda op: (op.start, -op.end)):
        if op.end > last or not kept:
            kept.append(op)
            last = op.end
    return kept
