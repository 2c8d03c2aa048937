"""Replay: measured steps simulated again with their own durations.

What a replay misses of a step is what its durations do not explain: gaps, transfers that were not
recorded.
"""

from array import array
from collections.abc import Sequence

from unbubble.action import JOINED, Kind, pack, receive_of
from unbubble.costs import Costs, Duration, StageCosts
from unbubble.schedule.inputs import inputs
from unbubble.schedule.order import Schedule
from unbubble.simulate.simulation import simulate
from unbubble.simulate.timeline import Timeline


def timeless(schedule: Schedule) -> Costs:
    """Costs of a schedule in which nothing takes time."""
    nothing = StageCosts(forward=Duration(), backward_input=Duration(), backward_weight=Duration())
    return Costs(stages=(nothing,) * schedule.num_stages)


def replay(timeline: Timeline, lags: Sequence["array[int]"] | None = None) -> Timeline:
    """The timeline's order with its own durations and no gaps; `lags` as for `simulate`."""
    rows = zip(timeline.schedule.codes, timeline.starts, timeline.ends, strict=True)
    durations = [
        # a pair's time stands at its second code
        array("q", (0 if c & JOINED else end - start for c, start, end in zip(*row, strict=True)))
        for row in rows
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
