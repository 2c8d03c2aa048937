"""The SVG is well-formed, loads nothing, and its rectangles are the timeline's actions."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from tests.report.timelines import HOSTILE, as_measured, every_kind, gpipe, virtual, with_tail

from unbubble.errors import InputError
from unbubble.report.rows import blocks
from unbubble.report.svg import svg

NAMESPACE = "{http://www.w3.org/2000/svg}"


def rectangles(text):
    """Class and (x, width) of every coloured rectangle of the picture's rows."""
    root = ElementTree.fromstring(text)
    found = []
    for rect in root.iter(f"{NAMESPACE}rect"):
        look = rect.get("class")
        if (
            look not in ("c", "t")
            and float(rect.get("x")) >= 62
            and rect.find(f"{NAMESPACE}title") is not None
        ):
            found.append((look, float(rect.get("x")), float(rect.get("width"))))
    return found


def texts(text):
    return [t.text for t in ElementTree.fromstring(text).iter(f"{NAMESPACE}text")]


def test_every_action_is_a_rectangle_at_its_time():
    found = rectangles(svg(gpipe(4, 8), width=62 + 14 + 33 * 20))
    assert len(found) == 64
    assert found[:2] == [("F0", 62.0, 19.0), ("F0", 82.0, 19.0)]
    assert found[15] == ("B0", 62.0 + 31 * 20, 39.0)


def test_a_pair_is_two_halves_and_kinds_have_their_colors():
    looks = [look for look, _, _ in rectangles(svg(every_kind()))]
    assert looks == [
        "F0",
        "F0",
        "F0",
        "B0",
        "I0",
        "W0",
        "B0",
        "F0",
        "B0",
        "F0",
        "I0",
        "W0",
        "F0",
        "B0",
    ]


def test_virtual_stages_are_shades():
    looks = {look for look, _, _ in rectangles(svg(virtual()))}
    assert looks == {"F0", "F1", "B0", "B1"}


def test_two_timelines_share_the_axis():
    slow, fast = gpipe(4, 8), as_measured(gpipe(4, 4))
    found = rectangles(svg(slow, fast, width=62 + 14 + 33 * 20))
    assert found[64] == ("F0", 62.0, 19.0)
    headings = [t for t in texts(svg(slow, fast)) if t.startswith("gpipe")]
    assert headings == [
        "gpipe, simulated: makespan 33, bubble 27.3%",
        "gpipe, measured: makespan 21, bubble 42.9%",
    ]


def test_timelines_of_different_units_are_refused():
    with pytest.raises(InputError, match="units are 'none' and 's'"):
        svg(gpipe(), gpipe(unit="s"))


def test_seconds_are_written_in_a_unit_that_suits():
    from fractions import Fraction

    text = svg(gpipe(forward=Fraction(1, 1000), backward=Fraction(2, 1000), unit="s"))
    assert "time in ms" in texts(text)
    assert "gpipe, simulated: makespan 33 ms, bubble 27.3%" in texts(text)


def test_names_are_escaped_and_nothing_is_loaded():
    text = svg(every_kind(HOSTILE), title=HOSTILE)
    assert "<script" not in text
    assert "<img" not in text
    assert re.findall(r"(?:https?:)?//[^\"'\s]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\(|@import|href", text)
    assert texts(text)[0].startswith("</title></script>")


@pytest.mark.parametrize(("ranks", "microbatches"), [(1, 1), (200, 3), (2, 3000)])
def test_large_and_small_pictures_stay_small_and_inside(ranks, microbatches):
    text = svg(gpipe(ranks, microbatches))
    root = ElementTree.fromstring(text)
    width, height = float(root.get("width")), float(root.get("height"))
    assert height < 900
    assert len(text) < 200_000
    for rect in root.iter(f"{NAMESPACE}rect"):
        assert float(rect.get("x")) >= 0
        assert float(rect.get("x")) + float(rect.get("width")) <= width
        assert float(rect.get("y")) + float(rect.get("height")) <= height


def test_two_pictures_in_one_page_keep_their_own_styles():
    first, second = (ElementTree.fromstring(svg(t)).get("id") for t in (gpipe(4), gpipe(5)))
    assert first != second


def test_the_tail_is_seen_where_no_compute_covers_it():
    timeline = with_tail()
    for rank in range(timeline.ranks):
        row = blocks(timeline, rank)
        assert all(a.end <= b.start for a, b in pairwise(row))
        compute = [b for b in row if b.action.is_compute]
        assert sum(b.end - b.start for b in compute) == timeline.work[rank]
        assert {b.action.kind.name for b in row[-2:]} == {"CLIP", "OPTIMIZER"}
    assert {look for look, _, _ in rectangles(svg(timeline))} == {"F0", "F1", "B0", "B1", "o"}
