"""Whatever can be simulated can be reported: random schedules with random costs."""

import json
from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import HealthCheck, given, reject, settings
from tests.report.test_chrome import by_track
from tests.strategies_costs import cases, lowered, orders

from unbubble.report.chrome import chrome
from unbubble.report.html import html
from unbubble.report.rows import blocks
from unbubble.report.svg import svg
from unbubble.report.text import draw, render
from unbubble.simulate import Deadlock, simulate
from unbubble.simulate.memory import activations


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(orders()) | cases(lowered(orders())))
def test_every_report_of_any_step(case):
    schedule, costs = case
    try:
        timeline = simulate(schedule, costs)
    except Deadlock:
        reject()
    for rank in range(timeline.ranks):
        row = blocks(timeline, rank)
        assert all(a.end <= b.start for a, b in pairwise(row))
        assert sum(b.end - b.start for b in row if b.action.is_compute) == timeline.work[rank]
    for ranges in by_track(json.loads(chrome(timeline))["traceEvents"]).values():
        assert all(a[1] <= b[0] for a, b in pairwise(sorted(ranges)))
    assert ElementTree.fromstring(svg(timeline)).tag.endswith("svg")
    assert html(timeline, costs=costs).endswith("</html>\n")
    for width in (30, 100):
        lines = render(timeline, width=width).splitlines()
        assert all(len(line) <= width for line in lines[: timeline.ranks])
    assert len(draw(timeline)) == timeline.ranks
    assert all(curve.values[-1] == 0 for curve in activations(timeline) if curve.values)
