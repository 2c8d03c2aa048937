"""In a notebook a Timeline and a Schedule are pictures."""

from tests.report.timelines import gpipe

from unbubble.report.svg import svg
from unbubble.schedule import Schedule


def test_a_timeline_shows_its_picture():
    timeline = gpipe()
    assert timeline._repr_html_() == svg(timeline)


def test_a_schedule_shows_equal_times():
    picture = gpipe(2, 2).schedule._repr_html_()
    assert picture == svg(gpipe(2, 2))  # there a backward takes 2 = I + W as well


def test_a_schedule_that_cannot_run_shows_why():
    stuck = Schedule.of([["0F0", "0B0", "0F1", "0B1"], ["1F1", "1F0", "1B0", "1B1"]], name="<b>")
    shown = stuck._repr_html_()
    assert "&lt;Schedule &lt;b&gt;: 2 ranks" in shown
    assert "deadlocks" in shown
