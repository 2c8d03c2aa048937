"""A step on the host alone (CPU and gloo): actions and transfers from ranges and operations.

The runtime's thread does one thing after another. A range of the runtime holds the wait for its
input as well as the action, so an action

    begins   when its range began, or the wait or the post before its first operation ended
    ends     halfway between its last operation and whatever the thread did next

A range around the call alone (`tight`) and an action recovered from operations begin where the
thread was free, which is where the thing before ended.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median_low

from unbubble.action import SENDS, TRANSFER, Action, Kind
from unbubble.trace.intervals import Interval
from unbubble.trace.marks import Mark
from unbubble.trace.names import (
    NO_STAGE,
    Named,
    is_optimizer,
    is_talk,
    step_named,
    transfer_named,
)
from unbubble.trace.observed import NOTICEABLE_NS, HalfTransfer, Seen
from unbubble.trace.rank_trace import Op, RankTrace, Window, starting_in

AFTERMATH_NS = 50_000
"""The call returns within this time after its last operation; what else passes is the runtime's."""


@dataclass
class HostStep:
    """What a step's thread shows, sorted by time. Found with the actions: `hollow` is the time at
    the ends of their ranges in which nothing ran (behind a recovered one, until the thread did
    something, if nothing that it may have waited for ended then); `late` that for which their input
    was there and nothing ran yet, beyond the usual."""

    window: Window
    named: Sequence[tuple[Interval, Named]]
    ops: Sequence[Op]
    transfers: Sequence[Mark]
    collectives: Sequence[Mark]
    others: Sequence[Mark]
    hollow: int = 0
    late: int = 0

    @classmethod
    def of(cls, trace: RankTrace, window: Window) -> "HostStep":
        thread = trace.main_thread
        marks = starting_in(trace.marks, window)
        named = trace.named_ranges(window)
        ops = starting_in(trace.ops.get(thread, []), window)
        if trace.launched and not named:
            ops = starting_in(trace.turns, window)
        return cls(
            window=window,
            named=named,
            ops=ops,
            transfers=[m for m in marks if transfer_named(m.name)],
            collectives=[m for m in marks if is_talk(m.name) and not transfer_named(m.name)],
            others=[
                m
                for m in marks
                if m.thread == thread and step_named(m.name) is None and not is_talk(m.name)
            ],
        )

    def actions(self, ranges: Sequence[tuple[Interval, Named]]) -> list[Seen]:
        """The compute actions of ranges, the waits and posts within taken out."""
        starts = [op.start for op in self.ops]
        frees = sorted(
            [op.end for op in self.ops]
            + [m.end for m in self.transfers]
            + [m.end for m in self.others]
        )
        busy = sorted(starts + [m.start for m in self.others])
        waits = sorted([m.end for m in self.transfers] + [op.end for op in self.ops if op.transfer])
        found: list[Seen] = []
        leads: dict[Kind, list[int]] = {}
        woken: list[tuple[int, int]] = []
        self.hollow = self.late = 0
        for (low, high), (action, tight) in ranges:
            inside = self.ops[bisect_left(starts, low) : bisect_left(starts, high)]
            body = [op for op in inside if not op.transfer]
            if not body:
                start, end = max(low, _last(waits, high)), high
            else:
                first, last = body[0].start, max(op.end for op in body)
                free = _last(frees, first) if tight and found else low
                start = max(free, waited := _last(waits, first))
                leads.setdefault(action.kind, []).append(first - start)
                if start == waited:
                    woken.append((len(found), first))
                until = self.window.end if tight else high
                after = bisect_left(busy, last)
                free_again = min(until, busy[after] if after < len(busy) else until)
                end = last + min((free_again - last) // 2, AFTERMATH_NS)
                start += _waited(body, waits, first, last)
                if tight and high > last:  # the call had not returned yet
                    end = max(end, min(high, free_again))
                elif not tight or (after < len(busy) and _last(waits, free_again) <= last):
                    self.hollow += free_again - end
            if found:
                start = max(start, found[-1].end)
            found.append(Seen(action, min(start, end), end))
        for i, first in woken:
            # what it waited for was there and nothing ran: a busy machine let it wait on before the
            # call, or the collector of garbage ran within; the middle is wrong by half at most
            usual = median_low(leads[found[i].action.kind])
            if first - found[i].start > 2 * usual + NOTICEABLE_NS:
                late = first - usual - found[i].start
                self.late += late
                found[i] = found[i]._replace(start=found[i].start + late // 2)
        return found

    def halves(self) -> tuple[list[HalfTransfer], list[HalfTransfer], list[HalfTransfer]]:
        """Transfers of ranges that name them; else the sends and the receives, as posted."""
        posts = [m.start for m in self.transfers]
        named = []
        for (low, high), (action, _) in self.named:
            if action.kind in TRANSFER:
                direction = "send" if action.kind in SENDS else "recv"
                here = self.transfers[bisect_left(posts, low) : bisect_right(posts, high)]
                fitting = [m for m in here if transfer_named(m.name) == direction]
                named += [self._half(action, m) for m in fitting[:1]]
        if named:
            return named, [], []
        rest: dict[str, list[HalfTransfer]] = {"send": [], "recv": []}
        for mark in self.transfers:
            direction = transfer_named(mark.name)
            kind = Kind.SEND_F if direction == "send" else Kind.RECV_F
            rest[direction].append(self._half(Action(kind, NO_STAGE, 0), mark))
        return [], rest["send"], rest["recv"]

    def _half(self, action: Action, mark: Mark) -> HalfTransfer:
        """`done` is the end of the wait; the data arrived then if the wait blocked."""
        free = _last(self._frees, mark.end - 1)
        i = bisect_right(self.ops, mark.start, key=lambda op: op.start)
        inside = i and self.ops[i - 1].transfer and mark.start <= self.ops[i - 1].end
        called = self.ops[i - 1].start if inside else mark.start
        blocked = mark.end - free > NOTICEABLE_NS
        return HalfTransfer(action, called, mark.start, mark.end, blocked)

    @cached_property
    def _frees(self) -> list[int]:
        points = [op.end for op in self.ops]
        points += [m.end for m in self.transfers]
        for (low, high), _ in self.named:
            points += [low, high]
        return sorted(points)

    def tail(self, after: int, group: Sequence[int]) -> list[Seen]:
        """Collectives that begin after the last action, taken for those of the `group` if it is
        known, and the optimizer, from its range."""
        optimizers = [m for m in self.others if is_optimizer(m.name)]
        until = min((m.start for m in optimizers), default=self.window.end)
        calls = [m for m in self.collectives if after <= m.start < until]
        found = [
            Seen(
                Action(Kind.REDUCE_GRAD, NO_STAGE), m.start, m.end, name="reduce",
                group=f"collective {turn} of ranks {list(group)}" if group else "",
                members=len(group),
            )
            for turn, m in enumerate(calls, 1)
        ]  # fmt: skip
        for m in optimizers:
            found.append(Seen(Action(Kind.OPTIMIZER, NO_STAGE), m.start, m.end))
        return found


def _waited(body: Sequence[Op], waits: Sequence[int], first: int, last: int) -> int:
    """Time waited between an action's operations: an overlapped pair runs its forward and waits for
    the backward's input then, but it counts from when both inputs are there."""
    ends = [op.end for op in body]
    found = 0
    for wait in waits[bisect_right(waits, first) : bisect_left(waits, last)]:
        gap = wait - _last(ends, wait)
        found += gap if gap > NOTICEABLE_NS else 0
    return found


def _last(values: Sequence[int], limit: int) -> int:
    """The largest value up to the limit, or the smallest possible time."""
    i = bisect_right(values, limit)
    return values[i - 1] if i else -(1 << 62)
