"""Pictures of a pipeline that never flushes say that its fill and its drain are in them."""

import pytest
from tests.report.timelines import gpipe, timeline_of

from unbubble.families import generate
from unbubble.report.html import html
from unbubble.report.svg import svg
from unbubble.report.text import render


@pytest.mark.parametrize("draw", [render, svg, html])
def test_what_is_drawn_is_said(draw):
    """They showed a makespan and a bubble that no step of the pipeline has, and did not say so."""
    shown = draw(timeline_of(generate("pipedream", 4, 12)))
    assert "ill, steady state and drain" in shown
    assert "steady state and drain" not in draw(gpipe())


def test_the_page_says_it_in_chinese_too():
    assert "填充、稳态与排空" in html(timeline_of(generate("pipedream", 4, 12)))
