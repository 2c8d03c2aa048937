"""A step on a device (CUDA, HIP): actions and transfers from the kernels that ranges launched.

A host range is launch time only. The kernels launched within it, found by their correlation, are
the action: from the first one's start to the last one's end, of which kernels at work are compute,
collectives that no kernel hides are communication, and gaps are overhead. A send-receive kernel is
pipeline traffic only if a send or a receive launched it, or a batch of them; all-to-all uses the
same kernel.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from unbubble.action import TRANSFER, Action, Kind
from unbubble.trace.intervals import Interval, length, outside, union
from unbubble.trace.names import (
    COLLECTIVE,
    COMPUTE,
    NO_STAGE,
    P2P,
    Named,
    is_optimizer,
)
from unbubble.trace.observed import About, Doubt, HalfTransfer, Seen
from unbubble.trace.posts import carried
from unbubble.trace.rank_trace import Kernel, RankTrace, Window, starting_in


class DeviceStep:
    """The kernels of one step by launch."""

    def __init__(self, trace: RankTrace, window: Window):
        kernels = trace.kernels
        first = bisect_left(kernels, window.begin, key=_launched)
        last = bisect_left(kernels, window.end, key=_launched)
        self.trace = trace
        self.window = window
        self.kernels = kernels[first:last]
        self.marks = starting_in(trace.marks, window)
        self.named = trace.named_ranges(window)

    def launched_in(self, interval: Interval) -> Sequence[Kernel]:
        low = bisect_left(self.kernels, interval[0], key=_launched)
        high = bisect_left(self.kernels, interval[1], key=_launched)
        return self.kernels[low:high]

    def gaps(self, ranges: Sequence[tuple[Interval, Named]]) -> list[Doubt]:
        """Kernels and launches of the step that lack each other."""
        found = []
        if loose := sum(not kernel.linked for kernel in self.kernels):
            found.append(
                Doubt(About.KERNELS, f"{loose} have no launch in the trace and belong to no action")
            )
        idle = self.trace.idle_launches
        lost = sum(bisect_left(idle, b) - bisect_left(idle, a) for (a, b), _ in ranges)
        if lost:
            found.append(Doubt(About.KERNELS, f"{lost} that actions launched are not in the trace"))
        return found

    def actions(self, ranges: Sequence[tuple[Interval, Named]]) -> tuple[list[Seen], list[str]]:
        """The compute actions by their first kernel; and those that launched none."""
        found, idle = [], []
        # where transfers have ranges of their own, others are no pipeline's: a ring's, for instance
        apart = any(named.action.kind in TRANSFER for _, named in self.named)
        for interval, (action, _) in ranges:
            here = [k for k in self.launched_in(interval) if k.linked]
            kernels = [k for k in here if apart or k.kind != P2P]
            seen = _seen(action, kernels)
            if seen is not None and self.trace.repeats.by_thread:
                again = [k for k in kernels if k.kind == COMPUTE]
                again = [k for k in again if self.trace.repeats_launched(k)]
                seen = seen._replace(recompute=length(union((k.start, k.end) for k in again)))
            if seen is None:
                idle.append(str(action))
            else:
                found.append(seen)
        return sorted(found, key=lambda seen: seen.start), idle

    def head(self, actions: Sequence[Seen]) -> tuple[list[Seen], int]:
        """The gathering of parameters before the first action; and for how much of the step more is
        gathered later with no kernel at work."""
        first = min((seen.start for seen in actions), default=self.window.end)
        work = union((k.start, k.end) for k in self.kernels if k.kind == COMPUTE)
        found: list[Seen] = []
        later: list[Interval] = []
        for interval, (action, _) in self.named:
            kernels = [k for k in self.launched_in(interval) if k.kind == COLLECTIVE]
            if action.kind is not Kind.UNSHARD or not kernels:
                continue
            start, end = min(k.start for k in kernels), max(k.end for k in kernels)
            start = max(start, found[-1].end if found else start)
            if start < min(end, first):
                found.append(Seen(action, start, min(end, first), name="unshard"))
            later += [(max(k.start, first), k.end) for k in kernels if k.end > first]
        return found, outside(union(later), work)

    def tail(self, after: int) -> list[Seen]:
        """Collectives launched after the last action's range, and the optimizer."""
        ranges = [(m.start, m.end) for m in self.marks if is_optimizer(m.name)]
        found = []
        first_optimizer = min((a for a, _ in ranges), default=self.window.end)
        turns: Counter[str] = Counter()
        for kernel in self.launched_in((after, max(after, first_optimizer))):
            if kernel.kind == COLLECTIVE:
                action = Action(Kind.REDUCE_GRAD, NO_STAGE)
                ranks, members = self.trace.members.get((kernel.start, kernel.end), ("", 0))
                turns[ranks] += 1
                group = f"collective {turns[ranks]} of ranks {ranks}" if ranks else ""
                found.append(
                    Seen(
                        action, kernel.start, kernel.end, name="reduce", group=group,
                        members=members,
                    )
                )  # fmt: skip
        for interval in ranges:
            action = Action(Kind.OPTIMIZER, NO_STAGE)
            if seen := _seen(action, self.launched_in(interval)):
                found.append(seen)
        return sorted(found, key=lambda seen: seen.start)

    def halves(self) -> tuple[list[HalfTransfer], list[HalfTransfer], list[HalfTransfer], str]:
        """Transfers of ranges that name them; else sends and receives as launched; or why not."""
        named = []
        for interval, (action, _) in self.named:
            if action.kind in TRANSFER:
                kernels = [k for k in self.launched_in(interval) if k.kind == P2P]
                named += [_half(action, k) for k in kernels[:1]]
        if named:
            return named, [], [], ""
        found, left = carried(self.trace, self.window, self.kernels)
        moving = sum(kernel.kind == P2P for kernel in self.kernels)
        loose = moving - len(found)
        if mixed := sum(one.mixed for one in found):
            reason = (
                f"{mixed} of {moving} send-receive kernels carry a batch of transfers with several "
                "ranks, or with some that the trace does not name, so when each was done"
            )
            return [], [], [], reason
        if loose and left:
            reason = (
                f"{loose} of {moving} send-receive kernels are not right behind the sends and "
                f"receives of a batch, of which {left} became no kernel, so when each was done"
            )
            return [], [], [], reason
        rest: dict[str, list[HalfTransfer]] = {"send": [], "recv": []}
        for kernel, posts in found:
            for post in posts:
                kind = Kind.SEND_F if post.direction == "send" else Kind.RECV_F
                half = _half(Action(kind, NO_STAGE, 0), kernel)
                # a batch is done with its last transfer
                rest[post.direction].append(half._replace(arrived=len(posts) == 1))
        reason = ""
        if loose:
            reason = (
                f"{loose} send-receive kernels were launched by no named send or receive, so "
                "whether they are pipeline traffic"
            )
        return [], rest["send"], rest["recv"], reason


def _seen(action: Action, kernels: Sequence[Kernel]) -> Seen | None:
    if not kernels:
        return None
    work = union((k.start, k.end) for k in kernels if k.kind == COMPUTE)
    talk = union((k.start, k.end) for k in kernels if k.kind != COMPUTE)
    start, end = min(k.start for k in kernels), max(k.end for k in kernels)
    exposed = outside(talk, work)
    return Seen(action, start, end, exposed, end - start - length(work) - exposed)


def _half(action: Action, kernel: Kernel) -> HalfTransfer:
    """A transfer's kernel runs from where its end is ready to the arrival."""
    return HalfTransfer(action, kernel.start, kernel.start, kernel.end, True)


def _launched(kernel: Kernel) -> int:
    return kernel.launched
