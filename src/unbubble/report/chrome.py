"""A timeline as Chrome trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

A rank is a process. Compute, the tail of a step, the host's posting of transfers and each
direction of transfers have tracks (threads) of their own, and a further one where two ranges
overlap, so that the ranges of a track never cross. Arrows go from an action to the one on another
rank that takes its output. Times are microseconds from the first start; a timeline without a unit
is written as if its unit were a millisecond. A measurement beside a prediction has processes of
its own, from 1000 on.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import msgspec

from unbubble.action import TRANSFER, Action, Kind
from unbubble.report.rows import window
from unbubble.schedule.inputs import inputs
from unbubble.simulate import Timeline, waits

TRACKS = (
    "compute",
    "tail",
    "posting",
    "send forward",
    "receive forward",
    "send backward",
    "receive backward",
)
"""The tracks of a rank; a track's n-th parallel one has thread number index + 1 + n × 10."""

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 1000, "µs": 1000, "ns": 1, "": 10**6}

Json = dict[str, Any]


class Tracks:
    """Places ranges so that those of one thread never overlap; remembers which threads exist."""

    def __init__(self) -> None:
        self.free: dict[tuple[int, str], list[int]] = {}

    def place(self, rank: int, track: str, start: int, end: int) -> int:
        """The thread number for a range; the ranges of a track come by ascending start."""
        lanes = self.free.setdefault((rank, track), [])
        lane = next((i for i, free in enumerate(lanes) if free <= start), len(lanes))
        lanes[lane : lane + 1] = [end]
        return TRACKS.index(track) + 1 + 10 * lane

    def names(self, process: int, suffix: str) -> Iterator[Json]:
        """The metadata events: names and order of processes and threads."""
        for rank in sorted({rank for rank, _ in self.free}):
            name = f"rank {rank}{suffix}"
            yield _metadata(process + rank, 0, "process_name", name=name)
            yield _metadata(process + rank, 0, "process_sort_index", sort_index=process + rank)
        for (rank, track), lanes in self.free.items():
            for lane in range(len(lanes)):
                thread = TRACKS.index(track) + 1 + 10 * lane
                order = TRACKS.index(track) * 1000 + lane
                name = track if lane == 0 else f"{track} ({lane + 1})"
                yield _metadata(process + rank, thread, "thread_name", name=name)
                yield _metadata(process + rank, thread, "thread_sort_index", sort_index=order)


def chrome(timeline: Timeline, measured: Timeline | None = None) -> bytes:
    """The file's content, UTF-8 JSON: one timeline, or a prediction and its measurement."""
    if measured is None:
        pictured = [(0, "", timeline)]
    else:
        first = 1000 * -(-timeline.ranks // 1000)
        pictured = [(0, ", predicted", timeline), (first, ", measured", measured)]
    return msgspec.json.encode(
        {
            "displayTimeUnit": "ms",
            "otherData": {
                "schedule": timeline.schedule.name or "custom",
                "kind": "measured" if timeline.measured else "simulated",
                "unit": timeline.unit or "none, 1 is written as 1 ms",
                "makespan": timeline.in_unit(timeline.makespan),
                "bubble_fraction": float(timeline.bubble_fraction),
            },
            "traceEvents": [e for one in pictured for e in _events(*one)],
        }
    )


def _events(process: int, suffix: str, timeline: Timeline) -> Iterator[Json]:
    """All events of a timeline whose rank 0 is `process`."""
    tracks = Tracks()
    clock = _Clock(timeline)
    ranges, places = _actions(timeline, tracks, clock)
    ranges += _transfers(timeline, tracks, clock)
    yield from tracks.names(process, suffix)
    for event in (*ranges, *_arrows(timeline, places)):
        event["pid"] += process
        if "id" in event:
            event["id"] += process << 32
        yield event


class _Clock:
    """Ticks to whole nanoseconds from the first start, so that ends meet starts exactly."""

    def __init__(self, timeline: Timeline):
        self.begin = min(window(timeline)[0], *(t.start for t in timeline.transfers), 1 << 62)
        self.factor = Fraction(_NANOSECONDS.get(timeline.unit, 10**6), timeline.ticks_per_unit)

    def __call__(self, tick: int) -> int:
        return round((tick - self.begin) * self.factor)


Place = tuple[int, int, int, int]
"""Rank, thread, start and end (nanoseconds) of a compute action."""


def _actions(timeline: Timeline, tracks: Tracks, clock: _Clock) -> tuple[list[Json], list[Place]]:
    """The ranges of all actions, and the place of every code."""
    waited = {(w.rank, w.end): w for w in waits(timeline) if w.cause is not None}
    ranges, places = [], []
    for rank in range(timeline.ranks):
        for action, first, last in timeline.events(rank):
            start, end = clock(first), clock(last)
            track = "compute" if action.is_compute else "tail"
            if action.kind in TRANSFER:
                track = "posting"
            thread = tracks.place(rank, track, start, end)
            args = _args(action)
            if action.is_compute and (wait := waited.get((rank, first))):
                via = "the transfer of " if wait.by_transfer else ""
                args["waited"] = timeline.in_unit(wait.end - wait.start)
                args["waited_for"] = f"{via}{wait.cause} on rank {wait.cause_rank}"
            ranges.append(_range(rank, thread, str(action), track, start, end, args))
            places += [(rank, thread, start, end)] * len(action.parts)
    return ranges, places


def _transfers(timeline: Timeline, tracks: Tracks, clock: _Clock) -> list[Json]:
    """Every transfer that takes time, on its way's track at both of its ends."""
    ranges = []
    for transfer in sorted(timeline.transfers, key=lambda t: t.start):
        action = transfer.action
        start, end = clock(transfer.start), clock(transfer.end)
        if end <= start:
            continue
        way = "forward" if action.kind is Kind.SEND_F else "backward"
        args = {**_args(action), "source": transfer.source, "destination": transfer.destination}
        for rank, verb in ((transfer.source, "send"), (transfer.destination, "receive")):
            track = f"{verb} {way}"
            thread = tracks.place(rank, track, start, end)
            ranges.append(_range(rank, thread, str(action), track, start, end, args))
    return ranges


def _arrows(timeline: Timeline, places: list[Place]) -> Iterator[Json]:
    """From each compute action to the one on another rank that takes its output."""
    for number, source in enumerate(inputs(timeline.schedule)):
        if source < 0 or places[source][0] == places[number][0]:
            continue
        rank, thread, start, end = places[source]
        common = {"id": number, "name": "output", "cat": "dependency"}
        leaves = max(start, end - 1)  # inside its range: at its end the next one has begun
        yield {"ph": "s", "pid": rank, "tid": thread, "ts": leaves / 1000, **common}
        rank, thread, start, _ = places[number]
        yield {"ph": "f", "bp": "e", "pid": rank, "tid": thread, "ts": start / 1000, **common}


def _args(action: Action) -> Json:
    args: Json = {"kind": action.kind.name, "stage": action.stage}
    if action.microbatch >= 0:
        args["microbatch"] = action.microbatch
    if action.pair is not None:
        args |= {
            "backward_stage": action.pair[1].stage,
            "backward_microbatch": action.pair[1].microbatch,
        }
    return args


def _range(
    rank: int, thread: int, name: str, category: str, start: int, end: int, args: Json
) -> Json:
    return {
        "ph": "X", "pid": rank, "tid": thread, "name": name, "cat": category,
        "ts": start / 1000, "dur": (end - start) / 1000, "args": args,
    }  # fmt: skip


def _metadata(rank: int, thread: int, what: str, **args: str | int) -> Json:
    return {"ph": "M", "pid": rank, "tid": thread, "name": what, "ts": 0, "args": args}
