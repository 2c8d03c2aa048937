"""Stragglers: actions that took much longer than their kind usually does on their stage."""

from collections.abc import Iterable
from typing import NamedTuple

from unbubble.action import Action
from unbubble.simulate import Timeline
from unbubble.trace.costs import Usual

TIMES_LONGER = 1.5
SHARE_OF_STEP = 100
"""What exceeds its usual time by less than a hundredth of the step is jitter."""


class Straggler(NamedTuple):
    """An action that `took` so long where its kind takes `usually`; times in ticks."""

    rank: int
    action: Action
    start: int
    took: int
    usually: int

    @property
    def excess(self) -> int:
        return self.took - self.usually


def stragglers(timeline: Timeline, times: Iterable[Usual]) -> list[Straggler]:
    """Those of a step, the one of the largest excess first; `times` are the usual ones, of this
    step or of several."""
    medians = {(u.stage, u.kind): u.median for u in times}
    found = []
    for rank in range(timeline.ranks):
        for action, start, end in timeline.events(rank):
            usually = medians.get((action.stage, action.kind))
            if usually is None:
                continue
            one = Straggler(rank, action, start, end - start, usually)
            if one.took > TIMES_LONGER * usually and one.excess * SHARE_OF_STEP > timeline.length:
                found.append(one)
    return sorted(found, key=lambda one: -one.excess)
