"""The page is whole in itself, escapes what it is given, and its data are the timeline."""

import json
import re
from array import array
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser
from zlib import decompress

import pytest
from tests.report.timelines import HOSTILE, as_measured, every_kind, gpipe, virtual, with_tail

from unbubble.action import Kind
from unbubble.attribution import attribute
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.report import write
from unbubble.report.charts import CLASSES, curves
from unbubble.report.html import html
from unbubble.report.scale import Scale, scale_for, shown
from unbubble.report.viewer import CAUSE, LOWER, TRANSFER, UPPER, viewer_data
from unbubble.runtime.gradients import Gradients
from unbubble.simulate.memory import Curve

VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails on tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def visible(self):
        return " ".join(t for tag, t in self.texts if tag not in ("script", "style"))


def full_page(name="1f1b"):
    timeline = virtual()
    return html(
        timeline,
        as_measured(timeline),
        title=name,
        facts=[(name, name)],
        gradients={
            name: Gradients(largest_difference=1e-7, parameter="weight", parameters=3),
            "bad": Gradients(largest_difference=float("nan"), parameter="weight", parameters=3),
        },
        warnings=[name],
    )


def test_the_page_loads_nothing():
    page = Page(full_page())
    loads = [
        (tag, name, value)
        for tag, name, value in page.attributes
        if name in ("src", "href", "srcset", "action", "data", "poster") or "url(" in (value or "")
    ]
    assert loads == [("link", "href", "data:,")]
    text = full_page()
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import|\bimport\s*\(|\bfrom\s+[\"']|fetch\(", text)


def test_what_users_name_is_escaped_everywhere():
    page = Page(full_page(HOSTILE))
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert not [a for a in page.attributes if a[1].startswith("on")]
    assert page.visible().count("<script>alert(") >= 4
    assert "\x00" not in full_page(HOSTILE)
    assert "\x1b" not in full_page(HOSTILE)
    data = viewer_of(html(every_kind(HOSTILE)))
    assert data["timelines"][0]["heading"]["en"].startswith("</title></script><script>")


def test_both_languages_are_marked():
    page = Page(full_page())
    marks = [value for _, name, value in page.attributes if name == "lang"]
    assert marks[0] == "en"
    assert marks.count("zh") == marks.count("en")  # the root is en, the button that switches is zh


def test_figures_stand_with_their_definitions():
    visible = Page(html(gpipe(4, 8))).visible()
    for words in ("last end − first start over all ranks", "idle / (ranks × makespan)",
                  "1 − (work of the busiest rank) / span", "27.27%", "37.50%"):  # fmt: skip
        assert words in visible


def test_only_a_step_with_a_tail_has_a_row_for_it():
    """A run's optimizer is not in its step, and the row to its end was that of the makespan."""
    assert "step with its tail" not in Page(html(gpipe(4, 8))).visible()
    assert "step with its tail" in Page(html(with_tail())).visible()


def test_parts_of_a_step_of_seconds_are_in_ms():
    """Of 2.8 s saved 0.002343 s, 0.000156 s: in ms parts compare at a glance."""
    step = replace(gpipe(4, 8), unit="s", ticks_per_unit=10)
    assert scale_for(step, 3.3).text(step.makespan) == "3,300 ms"
    assert scale_for(step, 33).text(step.makespan) == "3.3 s"


def test_gradients_that_differ_or_are_nan_are_called_different():
    page = Page(full_page())
    verdicts = [v for _, name, v in page.attributes if name == "class" and v in ("good", "bad")]
    assert verdicts == ["good", "bad"]


def test_units_that_differ_are_refused():
    with pytest.raises(InputError, match="units"):
        html(gpipe(), gpipe(unit="s"))


def test_two_predictions_go_by_the_names_of_their_schedules():
    names = [
        line["heading"]["en"] for line in viewer_of(html(gpipe(), every_kind("other")))["timelines"]
    ]
    assert names == ["gpipe", "other"]
    twice = viewer_of(html(gpipe(), gpipe(backward=3)))["timelines"]
    assert [line["heading"]["zh"] for line in twice] == ["gpipe（1）", "gpipe（2）"]
    assert "predicted" not in Page(html(gpipe(), every_kind("other"))).visible()


def viewer_of(text):
    content = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(content[1])


def columns(shown_timeline):
    packed = decompress(b64decode(shown_timeline["columns"]))
    count, at, found = shown_timeline["count"], 0, {}
    for name in shown_timeline["integers"]:
        found[name] = array("i", packed[at : at + 4 * count])
        at += 4 * count
    for name in shown_timeline["bytes"]:
        found[name] = packed[at : at + count]
        at += count
    assert at == len(packed)
    return found


def test_what_runs_beside_compute_stands_behind_it():
    timeline = with_tail()
    (line,) = viewer_data([("", "", timeline)])["timelines"]
    kinds = [Kind(k).name for k in columns(line)["kind"]]
    for rank in range(timeline.ranks):
        compute, beside, end = line["offsets"][2 * rank : 2 * rank + 3]
        assert set(kinds[compute:beside]) == {"F", "B"}
        assert kinds[beside:end] == ["REDUCE_GRAD", "REDUCE_GRAD", "CLIP", "OPTIMIZER"]


@pytest.mark.parametrize("timeline", [every_kind(), virtual(), gpipe(3, 5, p2p=2)])
def test_the_viewer_gets_every_action(timeline):
    (line,) = viewer_data([("a", "b", timeline)])["timelines"]
    got = columns(line)
    starts = [s for row in timeline.starts for s in row]
    ends = [e for row in timeline.ends for e in row]
    assert list(got["start"]) == starts
    assert [s + d for s, d in zip(got["start"], got["duration"], strict=True)] == ends
    assert line["per_unit"] * line["length"] == timeline.makespan / timeline.ticks_per_unit
    for rank in range(timeline.ranks):
        own = slice(line["offsets"][2 * rank], line["offsets"][2 * rank + 1])
        idle = sum(g for g, f in zip(got["gap"][own], got["flags"][own], strict=True) if f & 3 != 1)
        assert idle + timeline.work[rank] == timeline.ends[rank][-1]


def test_the_viewer_knows_pairs_and_causes():
    (line,) = viewer_data([("", "", every_kind())])["timelines"]
    got = columns(line)
    # rank 0  0F0 0F1 (0F2;0B0) …, which waited for 1B0, the second action of rank 1
    assert got["flags"][2] == UPPER
    assert got["flags"][3] == LOWER | CAUSE
    assert got["need"][3] == line["offsets"][2] + 1
    (line,) = viewer_data([("", "", virtual())])["timelines"]
    assert columns(line)["flags"][2] == CAUSE | TRANSFER


def test_of_a_very_large_timeline_some_ranks_are_shown(monkeypatch):
    monkeypatch.setattr("unbubble.report.viewer.MAX_ACTIONS", 100)
    (line,) = viewer_data([("", "", gpipe(10, 8))])["timelines"]
    assert line["ranks"] == [0, 1, 3, 5, 7, 9]
    assert line["of_ranks"] == 10
    assert line["count"] == 6 * 16
    assert max(columns(line)["need"]) < line["count"]


def test_ten_thousand_actions_make_a_page_of_moderate_size():
    text = html(gpipe(16, 313))
    assert len(text.encode()) < 400_000


def test_class_bars_fill_exactly_the_step():
    timeline = gpipe(4, 8, forward=[1, 2, 1, 1], backward=[2, 4, 2, 2], p2p=1)
    page = Page(html(timeline))
    widths = [
        (cls, float(re.search(r"width:([\d.]+)%", style)[1]))
        for (_, n1, cls), (_, _, _), (_, n3, style) in zip(
            page.attributes, page.attributes[1:], page.attributes[2:], strict=False
        )
        if n1 == "class" and cls.startswith("k-") and n3 == "style" and "width" in style
    ]
    rows = attribute(timeline).ranks
    signed = sum(-w if "negative" in cls else w for cls, w in widths)
    whole = max(sum(max(getattr(r, c[0]), 0) for c in CLASSES) for r in rows) - min(
        sum(min(getattr(r, c[0]), 0) for c in CLASSES) for r in rows
    )
    assert signed == pytest.approx(4 * 100 * float(rows[0].total / whole), abs=0.1)


def test_curves_of_memory_are_steps_with_their_peak():
    timeline = gpipe(1, 1, forward=40, backward=60)
    curve = Curve(array("q", [0, 40, 100]), [5 << 10, 4 << 10, 1 << 10], 1, 1 << 10)
    text = curves([(timeline, [curve])], "bytes", 10 << 10)
    assert 'd="M0 90H0V50H400V60H1000V90H1000"' in text
    assert 'class="limit" d="M0 0.00H1000"' in text
    assert "peak 5 KiB" in text


def test_memory_is_in_bytes_where_the_costs_have_them():
    timeline = gpipe(2, 3)
    costs = Costs.uniform(timeline.schedule.placement, backward=2)
    assert "microbatches of a whole rank" in html(timeline, costs=costs)
    rows = tuple(replace(row, held_until_input_bytes=2 << 30) for row in costs.stages)
    page = html(timeline, costs=replace(costs, stages=rows), memory_limit_bytes=8 << 30)
    assert "peak 6 GiB" in page
    assert page.count('class="limit"') == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (33, "33"), (1234567.8, "1,234,568"), (0.05, "0.05"), (27.2727, "27.27"),
     (-1.25, "−1.25"), (0.000123456, "0.0001235")],
)  # fmt: skip
def test_numbers_are_shown_to_four_digits(value, text):
    assert shown(value) == text


def test_marks_of_an_axis_are_round_and_inside():
    from fractions import Fraction

    marks = Scale("ms", Fraction(1, 10)).marks(335, 7)
    assert [text for _, text in marks] == ["0", "5", "10", "15", "20", "25", "30"]
    assert [round(share * 33.5, 9) for share, _ in marks] == [0, 5, 10, 15, 20, 25, 30]


def test_write_makes_whole_files_or_none(tmp_path):
    timeline = virtual()
    write(timeline, measured=as_measured(timeline), svg=tmp_path / "a.svg",
          chrome=tmp_path / "a.json", html=tmp_path / "a.html", title="x")  # fmt: skip
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.html", "a.json", "a.svg"]
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    with pytest.raises(InputError):
        write(gpipe(), measured=gpipe(unit="s"), chrome=tmp_path / "b.json",
              svg=tmp_path / "b.svg")  # fmt: skip
    with pytest.raises(FileNotFoundError):
        write(timeline, svg=tmp_path / "no such folder" / "b.svg")
    assert len(list(tmp_path.iterdir())) == 3


def test_that_some_ranks_are_left_out_is_said():
    """Of 64 ranks 32 had a bar and a curve, without a word."""
    page = html(gpipe(40, 1))
    assert page.count("32 of the 40 ranks, evenly spread.") == 2
    assert page.count("40 个 rank 中均匀选取的 32 个") == 2
    assert "evenly spread" not in html(gpipe())
