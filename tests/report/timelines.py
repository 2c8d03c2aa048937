"""Timelines that the tests of the reports share."""

from dataclasses import replace

from unbubble.costs import Costs, Tail
from unbubble.families import generate
from unbubble.schedule import Schedule
from unbubble.simulate import Timeline, simulate

HOSTILE = "</title></script><script>alert('ü&\x00\x1b')</script><img src=x onerror=alert(1)>"

PAIRS = [
    ["0F0", "0F1", "(0F2;0B0)OVERLAP_F_B", "0I1", "0W1", "0B2"],
    ["1F0", "1B0", "1F1", "1I1", "1W1", "1F2", "1B2"],
]
"""Every kind of compute action."""


def timeline_of(schedule: Schedule, **times) -> Timeline:
    return simulate(schedule, Costs.uniform(schedule.placement, **times))


def gpipe(ranks: int = 4, microbatches: int = 8, **times) -> Timeline:
    return timeline_of(generate("gpipe", ranks, microbatches), **{"backward": 2, **times})


def every_kind(name: str = "") -> Timeline:
    return timeline_of(Schedule.of(PAIRS, name=name))


def virtual() -> Timeline:
    """Two virtual stages a rank."""
    rows = [["0F0", "0F1", "2F0", "2F1", "2B0", "2B1", "0B0", "0B1"],
            ["1F0", "1F1", "3F0", "3B0", "3F1", "3B1", "1B0", "1B1"]]  # fmt: skip
    return timeline_of(Schedule.of(rows, name="two stages a rank"), backward=2, p2p=1)


def with_tail() -> Timeline:
    """Gradient reductions beside compute, then clipping and the optimizer."""
    schedule = virtual().schedule
    costs = Costs.uniform(schedule.placement, backward=2)
    tail = Tail(reduce=5, clip=1, optimizer=2, overlap_reduce=True)
    return simulate(schedule, replace(costs, tail=tail))


def as_measured(timeline: Timeline) -> Timeline:
    return replace(timeline, measured=True)
