"""The Chrome trace is what Perfetto needs: required fields, ranges that nest, arrows that land."""

import itertools
import json
from collections import defaultdict
from fractions import Fraction

import pytest
from tests.report.timelines import HOSTILE, as_measured, every_kind, gpipe, virtual, with_tail

from unbubble.report.chrome import chrome

REQUIRED = {
    "X": {"ph", "pid", "tid", "name", "cat", "ts", "dur", "args"},
    "M": {"ph", "pid", "tid", "name", "ts", "args"},
    "s": {"ph", "pid", "tid", "name", "cat", "ts", "id"},
    "f": {"ph", "pid", "tid", "name", "cat", "ts", "id", "bp"},
}

TIMELINES = [
    every_kind(),
    virtual(),
    as_measured(virtual()),
    with_tail(),
    gpipe(4, 8, p2p=Fraction(7, 2)),
    gpipe(3, 20, forward=Fraction(1, 3), backward=Fraction(1, 7), p2p=5, unit="s"),
    gpipe(1, 1),
]


def events_of(timeline):
    return json.loads(chrome(timeline))["traceEvents"]


def by_track(events):
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            tracks[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
    return tracks


def track_names(events):
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}


@pytest.mark.parametrize("timeline", TIMELINES)
def test_every_event_has_the_required_fields(timeline):
    for event in events_of(timeline):
        assert set(event) == REQUIRED[event["ph"]]
        assert isinstance(event["ts"], (int, float))
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0


@pytest.mark.parametrize("timeline", TIMELINES)
def test_ranges_of_a_track_never_cross(timeline):
    events = events_of(timeline)
    for ranges in by_track(events).values():
        ranges.sort()
        for (_, end), (start, _) in itertools.pairwise(ranges):
            assert end <= start
    assert set(by_track(events)) == set(track_names(events))


@pytest.mark.parametrize("timeline", TIMELINES)
def test_arrows_leave_from_and_land_on_ranges(timeline):
    events = events_of(timeline)
    tracks = by_track(events)
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert set(starts) == set(ends)
    for number, start in starts.items():
        end = ends[number]
        assert start["pid"] != end["pid"]
        assert start["ts"] <= end["ts"]
        for event in (start, end):
            at = round(event["ts"] * 1000)
            assert any(a <= at < b for a, b in tracks[event["pid"], event["tid"]])


def test_transfers_that_run_at_once_have_parallel_tracks():
    # F takes 1 and a transfer 3: up to three of them are under way at any time
    names = set(track_names(events_of(gpipe(2, 8, p2p=3))).values())
    assert names >= {"send forward", "send forward (2)", "send forward (3)", "receive forward (3)"}
    assert "send forward (4)" not in names


def test_times_are_microseconds_and_args_say_what_ran():
    events = events_of(gpipe(2, 1, forward=2, backward=3, unit="ms", p2p=1))
    (action,) = [e for e in events if e["ph"] == "X" and e["name"] == "1B0"]
    assert (action["ts"], action["dur"]) == (5000, 3000)
    assert action["args"] == {"kind": "B", "stage": 1, "microbatch": 0}
    (next_one,) = [e for e in events if e["ph"] == "X" and e["name"] == "0B0"]
    assert next_one["args"]["waited_for"] == "the transfer of 1B0 on rank 1"
    assert next_one["args"]["waited"] == 7


def test_a_pair_names_both_of_its_parts():
    (pair,) = [e for e in events_of(every_kind()) if e["name"].startswith("(")]
    assert pair["args"] == {
        "kind": "OVERLAP_F_B", "stage": 0, "microbatch": 2, "backward_stage": 0,
        "backward_microbatch": 0, "waited": 2, "waited_for": "1B0 on rank 1",
    }  # fmt: skip


def test_any_name_is_valid_json():
    assert json.loads(chrome(every_kind(HOSTILE)))["otherData"]["schedule"] == HOSTILE


def test_a_measurement_has_processes_of_its_own():
    timeline = virtual()
    events = json.loads(chrome(timeline, as_measured(timeline)))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {
        0: "rank 0, predicted", 1: "rank 1, predicted",
        1000: "rank 0, measured", 1001: "rank 1, measured",
    }  # fmt: skip
    ids = [e["id"] for e in events if e["ph"] == "s"]
    assert len(ids) == len(set(ids))
