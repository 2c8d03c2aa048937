"""Replay: measured steps simulated again, with their own durations or with usual ones.

What a replay misses of a step is what its durations do not explain: gaps, transfers that were not
recorded. What a step has beyond its usual replay is its jitter and its stragglers.
"""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from unbubble.action import JOINED, KIND_MASK, Action, Kind, pack, receive_of
from unbubble.costs import Costs, Duration, StageCosts
from unbubble.schedule.inputs import inputs
from unbubble.schedule.order import Schedule
from unbubble.simulate.simulation import simulate
from unbubble.simulate.timeline import Timeline


def timeless(schedule: Schedule) -> Costs:
    """Costs of a schedule in which nothing takes time."""
    nothing = StageCosts(forward=Duration(), backward_input=Duration(), backward_weight=Duration())
    return Costs(stages=(nothing,) * schedule.num_stages)


def replay(
    timeline: Timeline,
    durations: Sequence["array[int]"] | None = None,
    lags: Sequence["array[int]"] | None = None,
) -> Timeline:
    """The timeline's order with its own durations (or others, of its codes) and no gaps; `lags` as
    for `simulate`."""
    if durations is None:
        durations = [
            array("q", (end - start for start, end in zip(*row, strict=True)))
            for row in zip(timeline.starts, timeline.ends, strict=True)
        ]
    costs = timeless(timeline.schedule)
    return simulate(timeline.schedule, costs, durations=durations, lags=lags)


def seen_lags(timeline: Timeline) -> list["array[int]"]:
    """What each action's input took from its maker's end to the action's start, where that can be
    seen: its rank had nothing else to do when the input was made. Elsewhere 0.

    For traces without transfers: it holds the transfer, and what the runtime spent around it.
    """
    made = inputs(timeline.schedule)
    ends = [end for row in timeline.ends for end in row]
    found, position = [], 0
    for starts, done in zip(timeline.starts, timeline.ends, strict=True):
        lags, free = array("q"), timeline.begin
        for start, end in zip(starts, done, strict=True):
            source = made[position]
            ready = ends[source] if source >= 0 else start
            lags.append(max(start - ready, 0) if ready >= free else 0)
            free = max(free, end)
            position += 1
        found.append(lags)
    return found


def wire_times(timeline: Timeline) -> dict[int, int]:
    """The time on the wire of every action's input, in ticks, by the code of the action."""
    times = {}
    for transfer in timeline.transfers:
        receive = receive_of(transfer.action)
        for kind in (Kind.F,) if receive.kind is Kind.RECV_F else (Kind.B, Kind.I):
            code = pack(kind, receive.stage, receive.microbatch)
            times[code] = max(transfer.end - transfer.start, 0)
    return times


def usual_durations(timelines: Sequence[Timeline]) -> list["array[int]"]:
    """For the codes of the first timeline, each rank's median of the kind over all of them."""
    usual, first = _medians(timelines), timelines[0]
    return [
        array("q", (usual[rank, kind] for kind, _, _ in _kinds(first, rank)))
        for rank in range(first.ranks)
    ]


class Straggler(NamedTuple):
    """A step that took longer than the median step by `late` ticks; `action` on `rank` exceeded its
    usual time most, by `excess` ticks."""

    step: int
    late: int
    rank: int
    action: Action
    excess: int


def stragglers(timelines: Sequence[Timeline], threshold: float = 0.05) -> list[Straggler]:
    """The steps that took longer than the median by more than that part of it, in order."""
    lengths = [timeline.length for timeline in timelines]
    middle = round(median(lengths))
    usual = _medians(timelines)
    found = []
    for step, (timeline, length) in enumerate(zip(timelines, lengths, strict=True)):
        if length - middle <= threshold * middle:
            continue
        excess, rank, action = max(
            (event.end - event.start - usual[rank, event.action.kind], rank, event.action)
            for rank in range(timeline.ranks)
            for event in timeline.events(rank)
        )
        found.append(Straggler(step, length - middle, rank, action, excess))
    return found


def _medians(timelines: Sequence[Timeline]) -> dict[tuple[int, int], int]:
    """Each rank's median duration of each kind."""
    seen: dict[tuple[int, int], list[int]] = defaultdict(list)
    for timeline in timelines:
        for rank in range(timeline.ranks):
            for kind, start, end in _kinds(timeline, rank):
                seen[rank, kind].append(end - start)
    return {key: round(median(values)) for key, values in seen.items()}


def _kinds(timeline: Timeline, rank: int) -> list[tuple[int, int, int]]:
    """Kind, start and end of a rank's codes; a pair counts at its second code, its first as −1."""
    rows, joined = [], False
    codes = timeline.schedule.codes[rank]
    for code, start, end in zip(codes, timeline.starts[rank], timeline.ends[rank], strict=True):
        kind = -1 if code & JOINED else int(Kind.OVERLAP_F_B) if joined else code & KIND_MASK
        rows.append((kind, start, end))
        joined = bool(code & JOINED)
    return rows
