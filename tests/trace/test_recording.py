"""Recordings: save and load are inverse, and a damaged file is named."""

import json
from array import array

import pytest

from unbubble.action import parse
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.schedule import Schedule
from unbubble.simulate import Timeline, Transfer, simulate
from unbubble.trace import read_trace
from unbubble.trace.recording import dump_recording, load_recording, parse_recording, saved


def assert_same(a, b):
    assert a.schedule == b.schedule
    for field in ("starts", "ends", "begin", "finish", "communication", "overhead", "recompute",
                  "transfers", "unit", "ticks_per_unit", "measured"):  # fmt: skip
        assert getattr(a, field) == getattr(b, field), field


def test_a_simulated_timeline_comes_back(tmp_path):
    order = generate("gpipe", 3, 4)
    timeline = simulate(order, Costs.uniform(order.placement, backward=2, p2p=1))
    dump_recording(tmp_path / "run.json", [timeline, timeline])
    first, second = load_recording(tmp_path / "run.json").steps
    assert_same(first, timeline)
    assert_same(second, timeline)


@pytest.mark.parametrize(
    ("lengths", "chosen"), [([90, 6], 1), ([6, 90], 0), ([90, 7, 6], 1), ([90, 7, 6, 8], 1)]
)
def test_a_first_step_that_compiles_is_not_the_one_that_is_read(tmp_path, lengths, chosen):
    """miles#1830: of two steps the longer one was read, which held twenty minutes of compiling."""
    order = generate("gpipe", 2, 1)
    steps = [
        simulate(order, Costs.uniform(order.placement, forward=t, backward=0)) for t in lengths
    ]
    dump_recording(tmp_path / "run.json", steps)
    assert read_trace([tmp_path / "run.json"]).step == chosen


def test_an_overlapped_pair_is_one_action_in_the_file(tmp_path):
    schedule = Schedule.of([["0F0", "(0F1;0B0)OVERLAP_F_B", "0B1"]])
    timeline = Timeline(
        schedule=schedule,
        starts=(array("q", [0, 5, 5, 20]),),
        ends=(array("q", [5, 20, 20, 30]),),
        begin=0,
        finish=33,
        communication=(array("q", [1, 0, 4, 2]),),
        transfers=(Transfer(parse("0SEND_F0"), 0, 0, 2, 3),),
        ticks_per_unit=10**9,
        unit="s",
        measured=True,
    )
    assert saved([timeline]).steps[0].communication == [[1, 4, 2]]
    dump_recording(tmp_path / "run.json", [timeline])
    assert_same(load_recording(tmp_path / "run.json").steps[0], timeline)


GOOD = {
    "unbubble_recording": 1,
    "ticks_per_unit": 1000,
    "schedule": {"rank_of": [0], "rows": ["0F0,0B0"]},
    "steps": [{"begin": 0, "finish": 9, "starts": [[0, 4]], "ends": [[4, 9]]}],
}


def test_the_smallest_file_is_read():
    assert parse_recording(json.dumps(GOOD)).steps[0].work == (9,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unbubble_recording": 2}, "recording"),
        ({"ticks_per_unit": 0}, "ticks_per_unit"),
        ({"schedule": {"rank_of": [0], "rows": ["0F0,junk"]}}, "junk"),
        ({"schedule": {"rank_of": [1], "rows": ["0F0,0B0"]}}, "rank"),
        ({"steps": [{"begin": 0, "finish": 9, "starts": [[0]], "ends": [[4]]}]}, "1 times"),
        ({"steps": [{"begin": 0, "finish": 9, "starts": [[0, 5]], "ends": [[4, 3]]}]}, "ends"),
        ({"steps": [{"begin": 9, "finish": 0, "starts": [[0, 4]], "ends": [[4, 9]]}]}, "begins"),
        ({"steps": [{"begin": 0, "finish": 9, "starts": [[0, 2**62]], "ends": [[4, 2**62]]}]},
         "2\\^61"),
        ({"steps": 3}, "array"),
        # a receive in the place of its send was an internal error, once the classes were made
        ({"steps": [{"begin": 0, "finish": 9, "starts": [[0, 4]], "ends": [[4, 9]],
                     "transfers": [["0RECV_F0", 0, 0, 1, 2]]}]}, "named by its send"),
        ({"clock_uncertainty_ns": -1}, "clock_uncertainty_ns -1"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named(change, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_recording(json.dumps(GOOD | change), "run.json")
    assert str(caught.value).startswith("run.json: ")


def test_a_key_that_stands_twice_is_refused():
    text = json.dumps(GOOD).replace('"begin": 0', '"begin": 7, "begin": 0')
    with pytest.raises(InputError, match=r"^a: steps\[0\].begin: the key stands there twice"):
        parse_recording(text, "a")
