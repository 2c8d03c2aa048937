"""Reports of steps that were really measured, by the same code as those of simulated ones."""

import itertools
import json
from xml.etree import ElementTree

import pytest
from tests.report.test_chrome import by_track
from tests.shared import shared

from unbubble.report.chrome import chrome
from unbubble.report.html import html
from unbubble.report.svg import svg
from unbubble.report.text import render
from unbubble.trace import read

TRACES = ("traces/torch_gloo/ZBVZeroBubble", "traces/torch_gloo/1F1B", "measured/primus_mi300x/pp8")


@pytest.mark.parametrize("name", TRACES)
def test_a_measured_step_is_drawn_as_it_was(name):
    timeline = read([shared(name)]).pipelines[0].timeline
    assert timeline.measured
    work = [0] * timeline.ranks
    events = json.loads(chrome(timeline))["traceEvents"]
    for event in events:
        if event["ph"] == "X" and event["cat"] == "compute":
            work[event["pid"]] += round(event["dur"] * 1000)
    in_ns = [timeline.in_unit(w) * 1e9 for w in timeline.work]
    assert work == pytest.approx(in_ns, abs=len(timeline.schedule))
    for ranges in by_track(events).values():
        ranges.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))
    assert ElementTree.fromstring(svg(timeline)).tag.endswith("svg")
    assert "measured makespan" in html(timeline)
    lines = render(timeline, width=80).splitlines()
    assert all(len(line) <= 80 for line in lines[: timeline.ranks])
