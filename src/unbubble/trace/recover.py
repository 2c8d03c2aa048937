"""Recover actions that a trace does not name (PyTorch's own 1F1B) from autograd's links.

Autograd links each forward operation to its backward one. Runs of linked forward operations are
forwards, numbered in their order; runs of the autograd engine's operations are backwards, and
their links say of which forward. Sends, receives and waits end a run, and so does the other kind.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from unbubble.action import Action, Kind
from unbubble.trace.host import HostStep
from unbubble.trace.intervals import Interval
from unbubble.trace.names import NO_STAGE, Named
from unbubble.trace.rank_trace import RankTrace

T = TypeVar("T", int, tuple[int, int])
Run = tuple[Kind, int, int]
_STOP = Kind.RESHARD
BY_LINKS = "actions, from autograd's links of forward and backward operations"


def recover(trace: RankTrace, step: HostStep) -> tuple[list[tuple[Interval, Named]], str]:
    """Ranges of the actions (tight, without a stage), or none and the reason."""
    window = step.window
    linked = within(trace.linked, window.begin, window.end)
    if not linked:
        return [], "no range names an action and autograd's links of forward and backward are off"
    if not step.transfers and all(op.transfer not in ("send", "recv") for op in step.ops):
        return [], "no range names an action and nothing is sent or received between ranks"
    runs = _runs(step, linked)
    forwards = [run for run in runs if run[0] is Kind.F]
    backwards = [run for run in runs if run[0] is Kind.B]
    if not forwards or len(forwards) != len(backwards):
        return [], (
            f"no range names an action, and {len(forwards)} forward and {len(backwards)} backward "
            "runs of operations do not pair up"
        )
    owners = _owners(trace, step, forwards, backwards)
    if sorted(owners) != list(range(len(forwards))):
        return [], "no range names an action, and autograd's links do not pair the runs one to one"
    number = {id(run): i for i, run in enumerate(forwards)}
    number |= {id(run): owner for run, owner in zip(backwards, owners, strict=True)}
    return [
        ((run[1], run[2]), Named(Action(run[0], NO_STAGE, number[id(run)]), tight=True))
        for run in runs
    ], ""


def _runs(step: HostStep, linked: Sequence[int]) -> list[Run]:
    """Forward and backward runs by time: kind, first start, last operation's end."""
    ends = sorted(m.end for m in step.transfers)
    idle = [(m.start, m.end) for m in step.others if m.name.startswith("Optimizer.")]
    runs: list[Run] = []
    previous, unlinked = step.window.begin, -1
    for op in step.ops:
        if op.transfer in ("send", "recv") or _between(ends, previous, op.start):
            runs.append((_STOP, op.start, op.start))
            unlinked = -1
        previous = op.end
        if op.transfer or any(a <= op.start < b for a, b in idle):
            continue
        if op.backward:
            kind = Kind.B
        elif _between(linked, op.start - 1, op.end):
            kind = Kind.F
        else:
            unlinked = op.start if unlinked < 0 else unlinked
            continue
        last = runs[-1][0] if runs else _STOP
        if last is kind:
            runs[-1] = (kind, runs[-1][1], max(op.start + 1, op.end))
        else:  # what stands before belongs to it, but a forward leaves alone what ends a backward
            leads = unlinked >= 0 and (kind is Kind.B or (bool(runs) and last is _STOP))
            runs.append((kind, unlinked if leads else op.start, max(op.start + 1, op.end)))
        unlinked = -1
    return [run for run in runs if run[0] is not _STOP]


def _between(times: Sequence[int], low: int, high: int) -> bool:
    return bisect_right(times, low) < bisect_right(times, high)


def _owners(
    trace: RankTrace, step: HostStep, forwards: Sequence[Run], backwards: Sequence[Run]
) -> list[int]:
    """For every backward run the forward that most of its links come from; a forward that it runs
    again itself links to it as well."""
    starts = [run[1] for run in forwards]
    limits = [low for _, low, _ in backwards[1:]] + [step.window.end]
    owners = []
    for (_, low, _), high in zip(backwards, limits, strict=True):
        votes: Counter[int] = Counter()
        for _, origin in within(trace.links, (low, 0), (high, 0)):
            if origin < low and (j := bisect_right(starts, origin)):
                votes[j - 1] += 1
        owners.append(votes.most_common(1)[0][0] if votes else -1)
    return owners


def within(values: list[T], low: T, high: T) -> list[T]:
    """What of sorted values lies in low … high, the latter left out."""
    return values[bisect_left(values, low) : bisect_left(values, high)]
