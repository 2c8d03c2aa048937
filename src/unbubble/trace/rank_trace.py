"""RankTrace: what a profiler recorded on one rank, whatever its file format.

Kept is what matters: ranges, operations of each host thread that stand in no other operation,
forwards within autograd's backwards, kernels with their launches, and autograd's links of forward
and backward operations.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, NamedTuple, TypeVar

from unbubble.action import TRANSFER
from unbubble.trace.intervals import Interval, clip, length, outside, union
from unbubble.trace.marks import Mark, named_in
from unbubble.trace.names import (
    COLLECTIVE,
    COMPUTE,
    EITHER,
    P2P,
    Named,
    is_recompute,
    is_talk,
    loop_named,
    step_named,
    transfer_named,
)
from unbubble.trace.observed import Busy
from unbubble.trace.repeats import (
    ENGINE,
    NAMED,
    NOTHING,
    NUMBERED_FORWARD,
    RECORDED,
    Repeats,
    Within,
    any_within,
    covers,
    what_of,
)
from unbubble.trace.rounds import numbered_on
from unbubble.trace.sources import OtherKind
from unbubble.trace.unmarked import calls, cuts

MUCH_LATER_NS = 10_000_000
"""How much the clocks of host and device may differ."""


class Op(NamedTuple):
    """An outermost operation of a host thread."""

    start: int
    end: int
    transfer: str
    """`send` or `recv` for point-to-point posts, `collective` for others, `inner` for what every
    one of them does, else empty."""
    what: int
    """One of the engine's, or what it is if it proves to stand within one (see `repeats`)."""

    @property
    def backward(self) -> bool:
        return self.what == ENGINE


Timed = TypeVar("Timed", Mark, Op)


class Kernel(NamedTuple):
    """Device work; `launched` is the host's launch of it, or its own start if not `linked`."""

    start: int
    end: int
    kind: int
    launched: int
    linked: bool


class Window(NamedTuple):
    """One step on the host; `number` is the profiler's, None where it counted none."""

    number: int | None
    begin: int
    end: int


class RankTrace:
    """One rank's recording; times in ns from `base_ns`. Readers fill it, then call `finish`."""

    def __init__(self, source: str):
        self.source = source
        self.rank: int | None = None
        self.world_size: int | None = None
        self.pipeline_group: tuple[int, ...] = ()
        self.replica_group: tuple[int, ...] = ()
        """The only other group that the rank is in, where it is known to be in just one."""
        self.host = ""
        self.base_ns = 0
        """What the times count from, in ns of the machine's clock."""
        self.marks: list[Mark] = []
        self.ops: dict[Any, list[Op]] = {}
        self.numbered = False
        """Whether the profiler numbered operations of autograd."""
        self.inside: dict[Any, list[Within]] = {}
        """By thread what stands within operations of autograd's engine, as far as it matters."""
        self.flows: tuple[dict[Any, int], dict[Any, int]] = {}, {}
        """By id, when the forward operations ran and when the backward ones that they link to."""
        self.launches: dict[int, int] = {}
        """By correlation, when the host launched a kernel or asked for a copy."""
        self.launch_times: dict[Any, array[int]] = {}
        """The same by thread, ascending, where operations and launches name their threads alike."""
        self.copies: set[int] = set()
        """The correlations that may have no device work: copies, and questions about memory."""
        self.launched: list[tuple[int, int, int, Any]] = []
        """Start, end, kind and correlation of every kernel."""
        self.members: dict[tuple[int, int], tuple[str, int]] = {}
        """The ranks of a collective, in words, and how many they are, 0 where that is not said, by
        its kernel's start and end."""
        self.peers: dict[Any, list[tuple[int, int]]] = {}
        """By thread, when a send or a receive was posted and with which of the job's ranks."""
        self.processes: set[Any] = set()
        """The processes whose operations and ranges these are, where the format numbers them."""
        self.unnamed = 0
        """Kernels without a name."""
        self.left_out = 0
        """Events that lack a name, a category, a phase or a thread."""

    def add_op(self, thread: Any, start: int, end: int, name: str, side: int = 0) -> None:
        """Take an operation; of one within the one before only what tells repeated forwards.

        `side`: how the profiler numbers it (`unbubble.trace.repeats`).
        """
        if side:
            self.numbered = True
        ops = self.ops.setdefault(thread, [])
        if ops:
            first, last, _, around = ops[-1]
            if first <= start and end <= last:
                if around == ENGINE and (side == NUMBERED_FORWARD or name.startswith(NAMED)):
                    self._keep(thread, Within(start, end, what_of(name, side)))
                return
        ops.append(Op(start, end, _transfer(name), what_of(name, side)))

    def _keep(self, thread: Any, one: Within) -> None:
        if one.what == NOTHING:
            return
        rows = self.inside.setdefault(thread, [])
        last = rows[-1] if rows else None
        if last and last.what == RECORDED and last.start <= one.start and one.end <= last.end:
            return  # it is a part of that one
        rows.append(one)

    def finish(self) -> None:
        """Put everything in order, once all is there."""
        self.marks.sort(key=lambda mark: (mark.start, -mark.end))
        for thread, ops in self.ops.items():
            self.ops[thread] = self._outermost(thread, ops)
        for peers in self.peers.values():
            peers.sort()
        for thread, times in self.launch_times.items():
            self.launch_times[thread] = array("q", sorted(times))

    def _outermost(self, thread: Any, ops: list[Op]) -> list[Op]:
        """Drops operations that stand within another of their thread."""
        kept: list[Op] = []
        last = -1
        for op in sorted(ops, key=lambda op: (op.start, -op.end)):
            if op.end > last or not kept:
                kept.append(op)
                last = op.end
            elif kept[-1].what == ENGINE:
                self._keep(thread, Within(op.start, op.end, op.what))
        return kept

    @cached_property
    def kernels(self) -> list[Kernel]:
        """Device work by launch."""
        launches = self.launches
        found = []
        for start, end, kind, correlation in self.launched:
            launch = launches.get(correlation) if isinstance(correlation, int) else None
            if launch is not None and launch > start + MUCH_LATER_NS:
                launch = None  # it cannot be its launch
            launched = start if launch is None else launch
            if kind == P2P and _within(self._collectives, launched):
                kind = COLLECTIVE
            elif kind == EITHER:
                kind = P2P if _within(self._transfers, launched) else COLLECTIVE
            found.append(Kernel(start, end, kind, launched, launch is not None))
        return sorted(found, key=lambda kernel: (kernel.launched, kernel.start))

    @cached_property
    def idle_launches(self) -> list[int]:
        """When the host launched kernels that are not in the trace, ascending."""
        ran = {correlation for *_, correlation in self.launched if isinstance(correlation, int)}
        missing = self.launches.keys() - ran - self.copies
        return sorted(self.launches[correlation] for correlation in missing)

    @cached_property
    def _transfers(self) -> list[Interval]:
        """The host ranges of sends and receives, by start."""
        found = [(m.start, m.end) for m in self.marks if transfer_named(m.name)]
        found += [(m.start, m.end) for m, (one, _) in self.named.items() if one.kind in TRANSFER]
        found += [
            (op.start, op.end)
            for ops in self.ops.values()
            for op in ops
            if op.transfer in ("send", "recv")
        ]
        return sorted(found)

    @cached_property
    def _collectives(self) -> list[Interval]:
        """The host ranges of collectives that are no point-to-point operation, by start:
        all-to-all is made of sends and receives."""
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
        return named_in(self.marks)

    @cached_property
    def calls(self) -> list[int]:
        """The beginnings of all calls of the schedule but the first, where actions are named."""
        return calls(self)

    def calls_within(self, window: Window) -> list[int]:
        """Those that begin inside a window."""
        first = bisect_right(self.calls, window.begin)
        return self.calls[first : bisect_left(self.calls, window.end, first)]

    def named_marks(self, window: Window) -> list[tuple[Mark, Named]]:
        """A step's ranges that name actions, as each call numbers its microbatches."""
        marks = starting_in(self.marks, window)
        return [(mark, named) for mark in marks if (named := self.named.get(mark))]

    def named_ranges(self, window: Window) -> list[tuple[Interval, Named]]:
        """A step's ranges that name actions, those of several calls as of one."""
        ranges = [((mark.start, mark.end), named) for mark, named in self.named_marks(window)]
        return numbered_on(ranges, self.calls_within(window))

    @cached_property
    def repeats(self) -> Repeats:
        """Where forwards run again within backwards: by autograd's operations, else by name."""
        if not self.numbered:
            threads = {mark.thread for mark in self.marks if is_recompute(mark.name)}
            return Repeats({
                thread: union(
                    (m.start, m.end)
                    for m in self.marks
                    if m.thread == thread and is_recompute(m.name)
                )
                for thread in threads
            })  # fmt: skip
        return Repeats.of(self.inside, self._engine, self.linked)

    @cached_property
    def _engine(self) -> dict[Any, list[int]]:
        """By thread, when the outermost operations of autograd's engine start."""
        return {thread: [op.start for op in ops if op.backward] for thread, ops in self.ops.items()}

    @cached_property
    def turns(self) -> list[Op]:
        """The operations of the main thread and of autograd's own ones, which work while it waits
        for them, by start."""
        rows = [ops for thread, ops in self.ops.items()
                if thread == self.main_thread or self._engine[thread]]  # fmt: skip
        return sorted(chain.from_iterable(rows), key=_start)

    @cached_property
    def engine(self) -> list[int]:
        """When the outermost operations of autograd's engine start on any thread, ascending."""
        return sorted(chain.from_iterable(self._engine.values()))

    def works(self, low: int, high: int) -> bool:
        """Whether an operation begins in low … high, or a kernel's launch."""
        span = Window(None, low, high)
        ops = (op for own in self.ops.values() for op in starting_in(own, span))
        return any(not op.transfer for op in ops) or any_within(self._launched, low, high)

    @cached_property
    def _launched(self) -> list[int]:
        return [kernel.launched for kernel in self.kernels]

    def repeats_launched(self, kernel: Kernel) -> bool:
        """Whether it was a repeat of a forward that launched the kernel."""
        for thread, rows in self.repeats.by_thread.items():
            if covers(rows, kernel.launched):
                own = self.launch_times.get(thread)
                if own is None or any_within(own, kernel.launched, kernel.launched + 1):
                    return True
        return False

    @cached_property
    def linked(self) -> list[int]:
        """When the forward operations ran that autograd has a backward one for, ascending."""
        return sorted(self.flows[0].values())

    @cached_property
    def links(self) -> list[tuple[int, int]]:
        """For every such backward operation its time and its forward's, ascending."""
        starts, ends = self.flows
        return sorted((end, starts[key]) for key, end in ends.items() if key in starts)

    def span(self, window: Window) -> Interval:
        """A step's time: on a device from where it was done with the step before, as the host may
        launch a step long before the device comes to it, to the end of what the step launched."""
        before = bisect_left(self._launched, window.begin)
        last = bisect_left(self._launched, window.end)
        low, high = window.begin, window.end
        if before:
            low = max(low, self._done[before - 1])
        if last:
            high = max(high, self._done[last - 1])
        return low, high

    @cached_property
    def _done(self) -> list[int]:
        """When the device was done with each kernel, by launch, and all before it."""
        return list(accumulate((kernel.end for kernel in self.kernels), max))

    def busy(self, window: Window) -> Busy:
        """Work, communication that it does not hide, and neither, of a step: on the device, or of
        the operations on any thread where there is none."""
        low, high = self.span(window)
        work, talk = (clip(merged, low, high) for merged in self._at_work)
        working, talking = length(work), outside(talk, work)
        return Busy(working, talking, high - low - working - talking)

    @cached_property
    def _at_work(self) -> tuple[list[Interval], list[Interval]]:
        if self.launched:
            work = ((k.start, k.end) for k in self.kernels if k.kind == COMPUTE)
            talk = ((k.start, k.end) for k in self.kernels if k.kind != COMPUTE)
            return union(work), union(talk)
        every = [op for ops in self.ops.values() for op in ops]
        talks = [(m.start, m.end) for m in self.marks if is_talk(m.name)]
        talks += [(op.start, op.end) for op in every if op.transfer]
        return union((op.start, op.end) for op in every if not op.transfer), union(talks)

    @cached_property
    def windows(self) -> list[Window]:
        """The steps: the profiler's, those of the loop, or as `unbubble.trace.unmarked` has it."""
        for named in (step_named, loop_named):
            steps = [
                Window(number, mark.start, mark.end)
                for mark in self.marks
                if (number := named(mark.name)) is not None
            ]
            if steps:
                return list(dict.fromkeys(steps))
        begin, end = self.extent
        starts = [begin, *cuts(self)]
        return [
            Window(None, start, until)
            for start, until in zip(starts, [*starts[1:], end], strict=True)
        ]

    @cached_property
    def extent(self) -> tuple[int, int]:
        """First start and last end of anything kept."""
        spans = [(m.start, m.end) for m in self.marks]
        spans += [(ops[0].start, ops[-1].end) for ops in self.ops.values() if ops]
        spans += [(k[0], k[1]) for k in self.launched]
        if not spans:
            raise OtherKind(
                f"{self.source}: nothing in it is an operation, a range or a kernel of a profiler"
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


def _within(ranges: Sequence[Interval], at: int) -> bool:
    """Whether any of the ranges, ascending by start, holds the time."""
    i = bisect_right(ranges, (at, 1 << 62))
    return any(start <= at < end for start, end in ranges[max(i - 8, 0) : i])


def starting_in(rows: Sequence[Timed], window: Window) -> Sequence[Timed]:
    """What of rows, ascending by start, starts within a window."""
    first = bisect_left(rows, window.begin, key=_start)
    return rows[first : bisect_left(rows, window.end, key=_start)]


def _start(row: Mark | Op) -> int:
    return row.start


def _transfer(name: str) -> str:
    if not name.startswith("c10d::"):
        return "inner" if name == "record_param_comms" else ""
    if name.startswith("c10d::send"):
        return "send"
    return "recv" if name.startswith("c10d::recv") else "collective"
