"""Losses: operations of a forward that stand behind its range, told from autograd's links.

PyTorch's GPipe computes a microbatch's loss behind the range `Forward i`, and ranges of one's own
around a stage's methods leave it out too; in the ranges of the other schedules, and in forwards
that are recovered, it cannot be told apart:

    Forward 2 [linear relu linear] cross_entropy  Forward 3 …
                                   └ linked to a backward, and in no action's range
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from unbubble.action import Kind
from unbubble.trace.host import HostStep
from unbubble.trace.intervals import Interval
from unbubble.trace.names import Named, is_optimizer


def behind_forwards(
    step: HostStep, ranges: Sequence[tuple[Interval, Named]], linked: Sequence[int]
) -> Iterator[Interval]:
    """From the end of a forward's range to that of the last operation right behind it that autograd
    has a backward for; `linked` is when such operations ran, ascending."""
    starts = [op.start for op in step.ops]
    others = [at[0] for at, _ in step.named]
    others += [mark.start for mark in step.others if is_optimizer(mark.name)]
    others.sort()
    for (_, high), named in ranges:
        if named.action.kind is not Kind.F:
            continue
        after = bisect_left(others, high)
        until = others[after] if after < len(others) else step.window.end
        end = high
        for op in step.ops[bisect_left(starts, high) : bisect_left(starts, until)]:
            if op.transfer or op.backward:
                break
            if bisect_left(linked, op.start) < bisect_right(linked, op.end):
                end = op.end
        if end > high:
            yield high, end
