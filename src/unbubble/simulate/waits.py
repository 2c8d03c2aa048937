"""Waits: each idle gap of a rank, and what let it go on.

A rank waits because the input of its next action is not there. Its cause is the action that makes
that input, or the transfer that brings it, whichever ended last within the gap.
"""

from array import array
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from unbubble.action import JOINED, KIND_MASK, Action, Kind, is_compute, overlap, pack, unpack
from unbubble.schedule.inputs import inputs
from unbubble.simulate.timeline import Timeline


class Wait(NamedTuple):
    """`rank` computed nothing from `start` to `end`, in ticks; then `action` began.

    `cause`, on `cause_rank`, made the input that came last; `by_transfer`: its way between the
    ranks ended after itself and is what was waited for. Without a cause (−1) all inputs were there
    before the gap: the time is the rank's own.
    """

    rank: int
    start: int
    end: int
    action: Action
    cause: Action | None = None
    cause_rank: int = -1
    by_transfer: bool = False


def waits(timeline: Timeline) -> Iterator[Wait]:
    """Every gap in front of a compute action, from the step's begin on, rank by rank."""
    schedule = timeline.schedule
    source = inputs(schedule)
    codes = array("q", chain.from_iterable(schedule.codes))
    ends = array("q", chain.from_iterable(timeline.ends))
    rank_of = array("i", (rank for rank, row in enumerate(schedule.codes) for _ in row))
    arrivals = {
        pack(t.action.kind, t.action.stage, t.action.microbatch): t.end
        for t in timeline.transfers
        if t.end > t.start
    }

    def arrival(position: int) -> tuple[int, bool]:
        """When the output of a position is there for another rank, and if a transfer brought it."""
        code = codes[position] & ~(KIND_MASK | JOINED)
        forward = codes[position] & KIND_MASK == Kind.F
        brought = arrivals.get(code | (Kind.SEND_F if forward else Kind.SEND_B), ends[position])
        return max(brought, ends[position]), brought > ends[position]

    position = -1
    for rank, row in enumerate(schedule.codes):
        free = timeline.begin
        parts: list[int] = []
        for i, code in enumerate(row):
            position += 1
            if not is_compute(code):
                if code & KIND_MASK == Kind.UNSHARD:  # its rank gathers parameters and cannot wait
                    free = max(free, timeline.ends[rank][i])
                continue
            parts.append(position)
            if code & JOINED:
                continue
            start = timeline.starts[rank][i]
            if start > free:
                action = unpack(code)
                if len(parts) == 2:
                    action = overlap(unpack(codes[parts[0]]), action)
                causes = [
                    (*(arrival(p) if rank_of[p] != rank else (ends[p], False)), p)
                    for p in (source[part] for part in parts)
                    if p >= 0
                ]
                when, by_transfer, cause = max(causes, default=(free, False, -1))
                if when > free:
                    yield Wait(
                        rank, free, start, action, unpack(codes[cause]), rank_of[cause], by_transfer
                    )
                else:
                    yield Wait(rank, free, start, action)
            free = max(free, timeline.ends[rank][i])
            parts = []
