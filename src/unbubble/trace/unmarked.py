"""Unmarked: where the steps of a trace begin that has no range for them.

Actions that are named repeat in the next step. A step ends with its optimizer, or right before the
first receive behind its last action; where no action is named, only the optimizer divides steps:

    F0 F1 B0 B1 Optimizer.step | recv F0 F1 B0 B1 Optimizer.step
"""

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

from unbubble.action import Action
from unbubble.trace.names import is_optimizer, transfer_named
from unbubble.trace.repeats import any_within

if TYPE_CHECKING:
    from unbubble.trace.rank_trace import RankTrace


def cuts(trace: "RankTrace") -> list[int]:
    """The beginnings of all steps but the first; none where nothing tells them apart."""
    return _by_names(trace) if trace.named else _by_optimizer(trace)


def _by_names(trace: "RankTrace") -> list[int]:
    optimizers = [mark.end for mark in trace.marks if is_optimizer(mark.name)]
    receives = [mark.start for mark in trace.marks if transfer_named(mark.name) == "recv"]
    receives += [op.start for ops in trace.ops.values() for op in ops if op.transfer == "recv"]
    found: list[int] = []
    seen: set[Action] = set()
    ended = 0
    for mark, (action, _) in trace.named.items():
        if action in seen:
            ends = [end for end in optimizers if ended <= end <= mark.start]
            posts = [start for start in receives if ended <= start < mark.start]
            found.append(max(ends) if ends else min(posts, default=mark.start))
            seen.clear()
        seen.add(action)
        ended = mark.end
    return found


def _by_optimizer(trace: "RankTrace") -> list[int]:
    """Optimizers with no backward between them are of one step."""
    ranges = sorted((mark.start, mark.end) for mark in trace.marks if is_optimizer(mark.name))
    backwards = trace.engine
    found = [end for (_, end), (start, _) in pairwise(ranges) if any_within(backwards, end, start)]
    if ranges and bisect_right(backwards, ranges[-1][1]) < len(backwards):
        found.append(ranges[-1][1])
    return found
