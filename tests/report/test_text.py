"""The terminal's timeline: exact drawings are golden, scaled ones keep their promises."""

import re
from array import array
from fractions import Fraction

import pytest
from tests.drawings import cells, grids
from tests.report.timelines import PAIRS, timeline_of, with_tail

from unbubble.errors import InputError
from unbubble.families import generate, gpipe
from unbubble.report.text import MAX_ROWS, draw, render
from unbubble.schedule import Schedule
from unbubble.simulate import Timeline


def plain(colored):
    return re.sub("\x1b\\[[0-9;]*m", "", colored)


def test_the_docstring_of_gpipe_is_its_drawing():
    assert grids(gpipe.__doc__) == [cells(draw(timeline_of(generate("gpipe", 4, 4), backward=1)))]


def test_every_kind_has_its_mark_and_a_pair_is_joined():
    assert draw(timeline_of(Schedule.of(PAIRS))) == [
        "rank 0  0 1 . . 2+a+a b B . c c",
        "rank 1  . 0 a a 1 b B 2 c c . .",
    ]


def test_a_pair_of_one_cell_stands_in_a_wider_one():
    rows = [["(0F1;0B0)OVERLAP_F_B"]]
    schedule = Schedule.of(rows)
    one = Timeline(
        schedule=schedule, starts=(array("q", [0, 0]),), ends=(array("q", [5, 5]),),
        begin=0, finish=5,
    )  # fmt: skip
    assert draw(one) == ["rank 0  1+a"]


def test_cells_get_wider_beyond_nine_and_beyond_z():
    (row,) = draw(timeline_of(generate("gpipe", 1, 28), backward=1))
    assert row.startswith("rank 0   0  1  2")
    assert row.endswith(" y  z aa ab")


def test_the_unit_of_the_times_does_not_change_the_drawing():
    schedule = generate("gpipe", 3, 5)
    assert draw(timeline_of(schedule, forward=Fraction("0.7"), backward=Fraction("1.4"))) == draw(
        timeline_of(schedule, forward=1, backward=2)
    )


def test_a_drawing_that_is_too_long_is_refused():
    with pytest.raises(InputError, match="needs 20004 cells a rank"):
        draw(timeline_of(generate("gpipe", 1, 2), forward=1, backward=10001))


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("microbatches", [1, 4, 13, 300])
@pytest.mark.parametrize("backward", [2, Fraction("2.137")])
def test_no_line_is_wider_than_the_terminal(width, microbatches, backward):
    timeline = timeline_of(generate("gpipe", 12, microbatches), backward=backward)
    for color in (False, True):
        lines = plain(render(timeline, width=width, color=color)).splitlines()
        rows = [line for line in lines if line.startswith("rank ")]
        assert len(rows) == 12
        assert max(map(len, rows)) <= width
        assert len(set(map(len, rows))) == 1


def test_times_that_are_no_small_integers_scale_to_the_width():
    timeline = timeline_of(
        generate("gpipe", 2, 3), forward=Fraction("1.37"), backward=Fraction("2.91")
    )
    assert render(timeline, width=40).splitlines()[:3] == [
        "rank 0  0--1-2--........a====b=====c====",
        "rank 1  ...0-1--2-a=====b====c=====.....",
        "0- forward · a= backward · . idle",
    ]


def test_color_marks_the_same_actions():
    timeline = timeline_of(Schedule.of(PAIRS))
    colored = render(timeline, width=80, color=True)
    assert "\x1b[30;48;5;75m0" in colored
    assert plain(colored).splitlines()[0] == (
        "rank 0  0   1   ........2     +a    b   B   ....c       "
    )
    assert "\x1b" not in render(timeline, width=80)


def test_of_many_ranks_some_are_shown_and_the_reader_is_told():
    lines = render(timeline_of(generate("gpipe", 100, 2)), width=60).splitlines()
    assert [line[:7] for line in lines if line.startswith("rank ")][:2] == ["rank  0", "rank  3"]
    assert f"{MAX_ROWS} of 100 ranks are shown" in lines


def test_the_summary_names_each_figure():
    answer = render(timeline_of(generate("gpipe", 4, 8), backward=2), width=100)
    assert answer.endswith(
        "gpipe (simulated) · makespan 33 · span 33 · bubble 27.3% of ranks × makespan · "
        "by span 27.3%"
    )


def test_the_tail_is_rendered_but_not_drawn():
    rows = render(with_tail(), width=60).splitlines()
    assert rows[0].startswith("rank 0  ")
    assert "%" in rows[0]
    assert "%" not in "".join(draw(with_tail()))
