"""Unmarked: where the calls of a schedule begin in a trace, and the steps that no range marks.

Actions that are named repeat in the next call. A call ends with an optimizer, or right before the
first receive behind its last action. Calls without an optimizer between them are of one step, as
gradients that are accumulated, or an evaluation:

    F0 F1 B0 B1 Optimizer.step | recv F0 F1 B0 B1 | recv F0 F1 B0 B1 Optimizer.step
    step 0                     | step 1

Where no action is named only the optimizer divides steps; where there is none every call is one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from unbubble.action import WHOLE_STAGE, Action, Kind
from unbubble.trace.names import is_optimizer, transfer_named
from unbubble.trace.repeats import any_within

if TYPE_CHECKING:
    from unbubble.trace.rank_trace import RankTrace


def cuts(trace: "RankTrace") -> list[int]:
    """The beginnings of all steps but the first; none where nothing tells them apart."""
    if not trace.named:
        return _by_optimizer(trace)
    if not (optimizers := _optimizers(trace)):
        return list(trace.calls)
    return [
        call
        for before, call in pairwise([0, *trace.calls])
        if any_within(optimizers, before + 1, call + 1)
    ]


def calls(trace: "RankTrace") -> list[int]:
    """The beginnings of all calls of a schedule but the first, where actions are named."""
    optimizers = _optimizers(trace)
    receives = [mark.start for mark in trace.marks if transfer_named(mark.name) == "recv"]
    receives += [op.start for ops in trace.ops.values() for op in ops if op.transfer == "recv"]
    receives.sort()
    found: list[int] = []
    seen: set[Action] = set()
    ended = 0
    gathered = None
    for mark, (action, _) in trace.named.items():
        if action.kind is Kind.UNSHARD:  # it belongs to what comes
            gathered = mark.start if gathered is None else gathered
            continue
        if action in seen:
            start = mark.start if gathered is None else gathered
            ends = _between(optimizers, ended, start + 1)
            posts = _between(receives, ended, start)
            found.append(ends[-1] if ends else posts[0] if posts else start)
            seen.clear()
        if action.kind not in WHOLE_STAGE:
            seen.add(action)
        ended, gathered = mark.end, None
    return found


def _optimizers(trace: "RankTrace") -> list[int]:
    """The ends of optimizers, ascending."""
    return sorted(mark.end for mark in trace.marks if is_optimizer(mark.name))


def _between(times: Sequence[int], low: int, high: int) -> Sequence[int]:
    return times[bisect_left(times, low) : bisect_left(times, high)]


def _by_optimizer(trace: "RankTrace") -> list[int]:
    """Optimizers with no backward between them are of one step."""
    ranges = sorted((mark.start, mark.end) for mark in trace.marks if is_optimizer(mark.name))
    backwards = trace.engine
    found = [end for (_, end), (start, _) in pairwise(ranges) if any_within(backwards, end, start)]
    if ranges and bisect_right(backwards, ranges[-1][1]) < len(backwards):
        found.append(ranges[-1][1])
    return found
