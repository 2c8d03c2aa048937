"""Doubts: what in a joined step cannot be as the traces say, so that no figure goes by in silence.

A trace may lose single events, its clocks may drift, files of two runs may lie in one folder. Such
a step still adds up; what is odd about it is put into words.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from unbubble.action import JOINED, Action, unpack
from unbubble.quantity import shown_time
from unbubble.schedule.inputs import inputs, wanted_send
from unbubble.simulate import Timeline
from unbubble.trace.clocks import Clocks
from unbubble.trace.observed import NS, About, Doubt, Observed
from unbubble.trace.pairing import Pair

NOTICEABLE = 100
"""A share of the step: what contradicts by less than a hundredth of it is the precision."""
HOLLOW = 4
"""The share of the step for which an action's kernels may pause."""
PRECISION_NS = 200_000


def doubts(
    timeline: Timeline, observed: Sequence[Observed], found: Sequence[Pair], clocks: Clocks
) -> Iterator[Doubt]:
    """Every oddity."""
    length = timeline.length
    slack = max(length // NOTICEABLE, PRECISION_NS) + 2 * (clocks.uncertainty or 0)
    if clocks.contradiction > 0:
        yield Doubt(
            About.CLOCKS,
            f"effects precede their causes by up to {shown_time(clocks.contradiction / NS)}; "
            "times of different ranks are only that good against each other",
        )
    if clocks.uncertainty is None:
        yield Doubt(About.CLOCKS, "nothing that was sent bounds the clock of some rank")
    hosts = {one.host for one in observed}
    apart = max(map(abs, clocks.offsets), default=0)
    if len(hosts) == 1 and hosts != {""} and apart > slack:
        yield Doubt(
            About.CLOCKS,
            f"the traces are of one machine and yet {apart / NS:.3g} s apart; are they of one run?",
        )
    if found:
        yield from _absent(timeline, found)
        if not any(receive.arrived for *_, receive in found):
            yield Doubt(
                About.TRANSFERS,
                "nobody waited for the arrival of any, so their times are bounds from "
                "above, and communication may be less",
            )
    yield from _order(timeline, slack)
    yield from _hollow(timeline)


def _hollow(timeline: Timeline) -> Iterator[Doubt]:
    """Actions in which nothing ran for a good part of the step: a kernel at a wrong time."""
    length = timeline.finish - timeline.begin
    if timeline.overhead is None:
        return
    for rank, codes in enumerate(timeline.schedule.codes):
        for code, nothing in zip(codes, timeline.overhead[rank], strict=True):
            if nothing > length // HOLLOW:
                action = unpack(code & ~JOINED)
                yield Doubt(About.KERNELS, f"nothing ran for {nothing / NS:.3g} s within {action}")


def _absent(timeline: Timeline, found: Sequence[Pair]) -> Iterator[Doubt]:
    """Transfers that must have been and of which some end is in no trace."""
    seen = {send.action for _, send, _, _ in found}
    absent = [
        send
        for rank in range(timeline.ranks)
        for event in timeline.events(rank)
        for part in event.action.parts
        if (send := wanted_send(part, timeline.schedule.placement)) and send not in seen
    ]
    if absent:
        yield Doubt(
            About.TRANSFERS,
            f"{len(absent)} of {len(absent) + len(seen)} lack an end, as {absent[0]}; a "
            "wait for it may be counted as compute",
        )


def too_early(timeline: Timeline, slack: int) -> list[tuple[Action, Action]]:
    """Actions that begin by more than the slack before the one that makes their input ends."""
    codes, starts, ends = (
        [*chain.from_iterable(rows)]
        for rows in (timeline.schedule.codes, timeline.starts, timeline.ends)
    )
    # a pair may wait for its second input between its parts
    needed = [
        end if (code | before) & JOINED else start
        for before, code, start, end in zip([0, *codes], codes, starts, ends, strict=False)
    ]
    return [
        (unpack(codes[place]), unpack(codes[made]))
        for place, made in enumerate(inputs(timeline.schedule))
        if made >= 0 and ends[made] - needed[place] > slack
    ]


def _order(timeline: Timeline, slack: int) -> Iterator[Doubt]:
    """Actions that overlap on their rank, and actions before the one that makes their input."""
    overlaps = []
    for rank in range(timeline.ranks):
        before = None
        for event in timeline.events(rank):
            if event.action.is_compute:
                if before is not None and before.end - event.start > slack:
                    overlaps.append((before.action, event.action))
                before = event
    early = too_early(timeline, slack)
    if overlaps:
        first, second = overlaps[0]
        yield Doubt(
            About.ORDER, f"{len(overlaps)} actions of a rank overlap, as {first} and {second}"
        )
    if early:
        part, maker = early[0]
        yield Doubt(
            About.ORDER,
            f"{len(early)} actions begin before their input is made, as {part} and {maker}",
        )
