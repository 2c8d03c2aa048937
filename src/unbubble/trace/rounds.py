"""Rounds: the calls of a schedule within one step, where its actions are named.

Accumulated gradients take several, whose microbatches have the same numbers; they are numbered on.
An evaluation is one without a backward; before or behind the others it is no part of the step:

    F0 F1 B0 B1 F0 F1 B0 B1 Optimizer.step | F0 F1
    0  1  0  1  2  3  2  3                 | evaluation
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from unbubble.action import WHOLE_STAGE, Action, Kind
from unbubble.trace.intervals import Interval
from unbubble.trace.marks import Mark
from unbubble.trace.names import Named

if TYPE_CHECKING:
    from unbubble.trace.rank_trace import RankTrace, Window

Ranges = Sequence[tuple[Interval, Named]]
_BACKWARDS = (Kind.B, Kind.I)


def trained(trace: "RankTrace", window: "Window") -> "Window":
    """A step without the evaluations before and behind it, all of it if it is only that."""
    inside = trace.calls_within(window)
    bounds = [*pairwise([window.begin, *inside, window.end])]
    learning: dict[int, None] = {}
    evaluating: dict[int, None] = {}
    for mark, (action, _) in trace.named_marks(window):
        if action.is_compute:
            call = bisect_right(inside, mark.start)
            (learning if learns(trace, mark, action) else evaluating)[call] = None
    if not learning:
        return window
    first, last = min(learning), max(learning)
    begin = bounds[first][0] if any(call < first for call in evaluating) else window.begin
    end = bounds[last][1] if any(call > last for call in evaluating) else window.end
    return window._replace(begin=begin, end=end)


def learns(trace: "RankTrace", mark: Mark, action: Action) -> bool:
    """Whether a range is a backward's; PyTorch names those of an evaluation as well, in which
    nothing runs."""
    backward = any(part.kind in _BACKWARDS for part in action.parts)
    return backward and trace.works(mark.start, mark.end)


def between_steps(ranges: Ranges, at: Interval) -> bool:
    """Whether actions were done before an optimizer's range and others began behind it, and every
    microbatch that had begun was through. PipeDream's optimizers run while others are under way."""
    begun: dict[bool, set[tuple[int, int]]] = {True: set(), False: set()}
    later = False
    for (low, high), (action, _) in ranges:
        later |= low >= at[1]
        for part in action.parts if high <= at[0] else ():
            begun[part.kind is Kind.F].add((part.stage, part.microbatch))
    return later and bool(begun[True]) and begun[True] == begun[False]


def numbered_on(ranges: Ranges, cuts: Sequence[int]) -> list[tuple[Interval, Named]]:
    """The actions of several calls, which begin at the `cuts`, as those of one."""
    found: list[tuple[Interval, Named]] = []
    call, done, most = 0, 0, -1
    for (low, high), named in ranges:
        if (now := bisect_right(cuts, low)) != call:
            call, done = now, most + 1
        action = _later(named.action, done)
        most = max(most, *(part.microbatch for part in action.parts))
        found.append(((low, high), named._replace(action=action)))
    return found


def _later(action: Action, by: int) -> Action:
    if action.kind in WHOLE_STAGE or not by:
        return action
    moved = [part._replace(microbatch=part.microbatch + by) for part in action.parts]
    if len(moved) == 1:
        return moved[0]
    return action._replace(microbatch=moved[0].microbatch, pair=(moved[0], moved[1]))
