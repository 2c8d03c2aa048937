"""Pairing: which send belongs to which receive, and how long each tensor was on the wire.

A measured pair is split by both of its ends: until the later of the two was ready it is waiting,
from then on it is transfer.
"""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median_low

from unbubble.action import RECEIVE_OF, Action, Kind, receive_of
from unbubble.schedule import Placement
from unbubble.simulate import Transfer
from unbubble.trace.observed import HalfTransfer, Seen

Pair = tuple[int, HalfTransfer, int, HalfTransfer]
"""Source rank, its end; destination rank, its end."""


def name_in_order(
    actions: Sequence[Seen],
    sends: Sequence[HalfTransfer],
    receives: Sequence[HalfTransfer],
    placement: Placement,
) -> tuple[list[HalfTransfer], str]:
    """Names for transfers that have none, from the order of the rank's actions: what a stage
    makes is sent after it, what it needs is received before it. Without names there is a reason."""
    given, needed = [], []
    for seen in actions:
        for part in seen.action.parts:
            given += list(wanted_sends(part, placement))
            needed += list(wanted_receives(part, placement))
    if (len(given), len(needed)) != (len(sends), len(receives)):
        return [], (
            f"{len(sends)} sends and {len(receives)} receives where the order of actions has "
            f"{len(given)} and {len(needed)}, so which tensor each carried"
        )
    named = [half._replace(action=a) for half, a in zip(sends, given, strict=True)]
    return named + [half._replace(action=a) for half, a in zip(receives, needed, strict=True)], ""


def output(action: Action) -> Action:
    """The action that stands for what an F, B or I makes: an I goes as B."""
    return action._replace(kind=Kind.B) if action.kind is Kind.I else action


def wanted_sends(action: Action, placement: Placement) -> Iterator[Action]:
    """What an action makes that another rank needs."""
    stage = action.stage
    if action.kind is Kind.F and _remote(stage, stage + 1, placement):
        yield Action(Kind.SEND_F, stage, action.microbatch)
    if action.kind in (Kind.B, Kind.I) and _remote(stage, stage - 1, placement):
        yield Action(Kind.SEND_B, stage, action.microbatch)


def wanted_receives(action: Action, placement: Placement) -> Iterator[Action]:
    """What an action needs that another rank makes."""
    stage = action.stage
    if action.kind is Kind.F and _remote(stage, stage - 1, placement):
        yield Action(Kind.RECV_F, stage, action.microbatch)
    if action.kind in (Kind.B, Kind.I) and _remote(stage, stage + 1, placement):
        yield Action(Kind.RECV_B, stage, action.microbatch)


def _remote(stage: int, other: int, placement: Placement) -> bool:
    rank_of = placement.rank_of
    same_copy = 0 <= other < len(rank_of) and (
        stage // placement.num_stages == other // placement.num_stages
    )
    return same_copy and rank_of[stage] != rank_of[other]


def pairs(halves: Sequence[Sequence[HalfTransfer]]) -> list[Pair]:
    """Both ends of every transfer of which both were seen."""
    receives = {
        half.action: (rank, half)
        for rank, row in enumerate(halves)
        for half in row
        if half.action.kind in (Kind.RECV_F, Kind.RECV_B)
    }
    found = []
    for rank, row in enumerate(halves):
        for half in row:
            if half.action.kind in RECEIVE_OF:
                other = receives.get(receive_of(half.action))
                if other is not None:
                    found.append((rank, half, *other))
    return found


def transfers(found: Iterable[Pair], offsets: Sequence[int]) -> list[Transfer]:
    """The time on the wire of every pair, on the common clock.

    Where nobody waited for the arrival, the pair's bound is cut to the median of those that were
    waited for between the same two ranks (of any two, if there were none).
    """
    result: list[Transfer] = []
    loose: list[int] = []
    known: dict[tuple[int, int], list[int]] = {}
    for source, send, destination, receive in found:
        start = max(send.posted + offsets[source], receive.posted + offsets[destination])
        end = max(start, receive.done + offsets[destination])
        if receive.arrived:
            known.setdefault((source, destination), []).append(end - start)
        else:
            loose.append(len(result))
        result.append(Transfer(send.action, source, destination, start, end))
    everyone = [t for times in known.values() for t in times]
    for i in loose:
        one = result[i]
        typical = known.get((one.source, one.destination)) or everyone
        if typical:
            end = min(one.end, one.start + median_low(typical))
            result[i] = one._replace(end=end)
    return result
