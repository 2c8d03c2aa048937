"""The Timeline of a measured step, on one clock, made of what its ranks saw of their actions."""

from array import array
from collections.abc import Sequence

from unbubble.action import JOINED, Action, receive_for
from unbubble.schedule import Schedule
from unbubble.schedule.rules import positions
from unbubble.simulate import Timeline
from unbubble.trace.clocks import Clocks
from unbubble.trace.observed import NS, Seen
from unbubble.trace.pairing import Pair, transfers


def timeline_of(
    schedule: Schedule,
    rows: Sequence[Sequence[Seen]],
    found: Sequence[Pair],
    clocks: Clocks,
    recompute_told: bool = False,
) -> Timeline:
    """The schedule's Timeline, from the first start on: `rows[r]` is what rank r saw of its actions
    in their order, of their recompute only if that is told."""
    placed = [
        [seen._replace(start=seen.start + by, end=seen.end + by) for seen in row] if by else row
        for row, by in zip(rows, clocks.offsets, strict=True)
    ]
    rows, found = not_before_sent(placed, found, clocks.offsets)
    seen_of = by_code(schedule, without_waits(rows))
    zero = min(seen.start for row in seen_of for seen in row)
    starts = [array("q", [seen.start - zero for seen in row]) for row in seen_of]
    ends = [array("q", [seen.end - zero for seen in row]) for row in seen_of]
    communication, overhead, recompute = [], [], []
    for codes, row in zip(schedule.codes, seen_of, strict=True):
        last = [not code & JOINED for code in codes]  # the parts of a pair stand at its second code
        both = [*zip(row, last, strict=True)]
        communication.append(array("q", [seen.communication * own for seen, own in both]))
        overhead.append(array("q", [seen.overhead * own for seen, own in both]))
        recompute.append(array("q", [seen.recompute * own for seen, own in both]))
    return Timeline(
        schedule=schedule,
        starts=tuple(starts),
        ends=tuple(ends),
        begin=0,
        finish=max(map(max, ends)),
        communication=tuple(communication) if any(map(any, communication)) else None,
        overhead=tuple(overhead),
        recompute=tuple(recompute) if recompute_told else None,
        transfers=tuple(transfers(found, [offset - zero for offset in clocks.offsets])),
        unit="s",
        ticks_per_unit=NS,
        measured=True,
    )


def not_before_sent(
    rows: Sequence[Sequence[Seen]], found: Sequence[Pair], offsets: Sequence[int]
) -> tuple[Sequence[Sequence[Seen]], Sequence[Pair]]:
    """The rows and their transfers, recorded actions started once their input was sent.

    A recorder alone cannot know that what its rank did before that cost nothing, where the input
    had come when the rank asked for it. The two inputs of a pair are used at times of their own.
    """
    changed = [list(row) for row in rows]
    kept = list(found)
    users: list[dict[Action, int]] = [{} for _ in rows]
    for number, (source, send, destination, receive) in enumerate(found):
        early = send.called + offsets[source] - receive.used - offsets[destination]
        if early <= 0:
            continue
        row = changed[destination]
        users[destination] = users[destination] or {
            wanted: place
            for place, seen in enumerate(row)
            if (wanted := receive_for(seen.action)) is not None
        }
        place = users[destination].get(receive.action)
        if place is not None:
            seen = row[place]
            by = min(early, seen.overhead)
            row[place] = seen._replace(start=seen.start + by, overhead=seen.overhead - by)
            kept[number] = (source, send, destination, receive._replace(used=receive.used + by))
    return changed, kept


def by_code(schedule: Schedule, rows: Sequence[Sequence[Seen]]) -> list[list[Seen]]:
    """What was seen of every code of the schedule; a pair has two."""
    return [
        [row[place] for place, _ in positions(codes)]
        for codes, row in zip(schedule.codes, rows, strict=True)
    ]


def without_waits(rows: Sequence[Sequence[Seen]]) -> Sequence[Sequence[Seen]]:
    """Every collective from the moment that the last rank of its group was there."""
    latest: dict[str, int] = {}
    for row in rows:
        for seen in row:
            if seen.group:
                latest[seen.group] = max(seen.start, latest.get(seen.group, seen.start))
    if not latest:
        return rows
    return [
        [
            seen._replace(start=min(latest[seen.group], seen.end)) if seen.group else seen
            for seen in row
        ]
        for row in rows
    ]
