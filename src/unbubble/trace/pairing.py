"""Pairing: which send belongs to which receive, and how long each tensor was on the wire.

A measured pair is split by both of its ends: until the later of the two was ready it is waiting,
from then on it is transfer.
"""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median_low

from unbubble.action import RECEIVE_OF, RECEIVES, receive_of
from unbubble.schedule import Placement
from unbubble.schedule.inputs import wanted_receive, wanted_send
from unbubble.simulate import Transfer
from unbubble.trace.clocks import Before
from unbubble.trace.observed import FOREVER_NS, HalfTransfer, Seen

ENOUGH = 8
"""So many arrivals between two ranks have a median that one late one does not make."""

Pair = tuple[int, HalfTransfer, int, HalfTransfer]
"""Source rank, its end; destination rank, its end."""


def name_in_order(
    actions: Sequence[Seen],
    sends: Sequence[HalfTransfer],
    receives: Sequence[HalfTransfer],
    placement: Placement,
    until: int = FOREVER_NS,
) -> tuple[list[HalfTransfer], str]:
    """Names for transfers that have none, from the order of the rank's actions: what a stage
    makes is sent after it, what it needs is received before it. Without names there is a reason.

    What was over before the first action and not needed, or began `until` its end, is no part of
    the step: ranks tell each other the shapes of tensors before, and evaluate behind.
    """
    parts = [part for seen in actions for part in seen.action.parts]
    given = [send for part in parts if (send := wanted_send(part, placement))]
    needed = [receive for part in parts if (receive := wanted_receive(part, placement))]
    first = min((seen.start for seen in actions), default=0)
    sends, receives = (
        _of_step(halves, count, first, until)
        for halves, count in ((sends, len(given)), (receives, len(needed)))
    )
    if (len(given), len(needed)) != (len(sends), len(receives)):
        return [], (
            f"{len(sends)} sends and {len(receives)} receives where the order of actions has "
            f"{len(given)} and {len(needed)}, so which tensor each carried"
        )
    named = [half._replace(action=a) for half, a in zip(sends, given, strict=True)]
    return named + [half._replace(action=a) for half, a in zip(receives, needed, strict=True)], ""


def _of_step(
    halves: Sequence[HalfTransfer], count: int, first: int, until: int
) -> Sequence[HalfTransfer]:
    """The transfers without those behind the step and, down to so many, those before it."""
    halves = [half for half in halves if half.posted < until]
    early = sum(half.done <= first for half in halves)
    return halves[min(max(len(halves) - count, 0), early) :]


def pairs(halves: Sequence[Sequence[HalfTransfer]]) -> list[Pair]:
    """Both ends of every transfer of which both were seen."""
    receives = {
        half.action: (rank, half)
        for rank, row in enumerate(halves)
        for half in row
        if half.action.kind in RECEIVES
    }
    found = []
    for rank, row in enumerate(halves):
        for half in row:
            if half.action.kind in RECEIVE_OF:
                other = receives.get(receive_of(half.action))
                if other is not None:
                    found.append((rank, half, *other))
    return found


def transfer_orders(found: Iterable[Pair]) -> Iterator[Before]:
    """What transfers say of clocks: a send begins before its receive is done."""
    for source, send, destination, receive in found:
        yield source, send.called, destination, receive.done


def transfers(found: Sequence[Pair], offsets: Sequence[int]) -> list[Transfer]:
    """The time on the wire of every pair, on the common clock; it is none for data that arrive
    before the call that sends them returns.

    Where nobody waited for the arrival, the pair's bound is cut to the median of those that were
    waited for between the same two ranks (of any two, if there were few).
    """
    bounds: list[tuple[int, int]] = []
    known: dict[tuple[int, int], list[int]] = {}
    for source, send, destination, receive in found:
        there = offsets[destination]
        end = min(receive.done, receive.used) + there
        start = min(max(send.posted + offsets[source], receive.posted + there), end)
        bounds.append((start, end))
        if receive.arrived:
            known.setdefault((source, destination), []).append(end - start)
    everyone = [time for times in known.values() for time in times]
    typical = {edge: median_low(times) for edge, times in known.items() if len(times) >= ENOUGH}
    usual = median_low(everyone) if everyone else FOREVER_NS
    return [
        Transfer(
            send.action,
            source,
            destination,
            start,
            end if receive.arrived else min(end, start + typical.get((source, destination), usual)),
        )
        for (source, send, destination, receive), (start, end) in zip(found, bounds, strict=True)
    ]
