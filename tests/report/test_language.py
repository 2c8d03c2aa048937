"""The page's Chinese: whole, and in the words of the glossary."""

import re
from pathlib import Path

import pytest
from tests.report.timelines import as_measured, gpipe

from unbubble.attribution import CLASSES as CLASSES_OF_A_RANK
from unbubble.report.charts import CLASSES
from unbubble.report.html import html
from unbubble.report.language import CHINESE, sentence, translated
from unbubble.trace.findings import verdict
from unbubble.trace.megascan import NO_TRANSFERS
from unbubble.trace.profiled import EVALUATED, UNDIVIDED, UNNUMBERED
from unbubble.trace.recover import BY_LINKS
from unbubble.trace.rehearsal import REHEARSED

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "src/unbubble" / name for name in ("demo.py", "cli/run.py", "cli/trace.py")]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_the_names_of_all_facts_have_a_chinese_one(source):
    """They were English on the Chinese page."""
    facts = re.search(r"facts=\[(.*?)\],\n", source.read_text(), re.DOTALL)[1]
    names = re.findall(r'\(\s*"([^"]+)",', facts)
    assert names
    assert [name for name in names if name not in CHINESE] == []


@pytest.mark.parametrize(
    "fractions",
    [[0.9, 0.04, 0, 0, 0, 0], *([0.5 * (i == j) for i in range(6)] for j in range(1, 6))],
)
def test_every_verdict_has_a_chinese_one(fractions):
    """The sentence that says where the step went was English on the Chinese page."""
    english = verdict(dict(zip(CLASSES_OF_A_RANK, fractions, strict=True)))
    shown = sentence(english)
    assert shown.startswith(f'<span lang="en">{english}</span><span lang="zh">瓶颈')
    assert not re.search("[a-z]", re.sub("<.*>", "", shown[shown.index("瓶颈") : -len("</span>")]))
    assert shown.count("50%") in (0, 2)


@pytest.mark.parametrize("doubt", [UNNUMBERED, UNDIVIDED, NO_TRANSFERS])
def test_what_is_often_not_told_is_said_in_both_languages(doubt):
    page = html(gpipe(), warnings=[f"cannot tell: {doubt}", f"recovered: {BY_LINKS}"])
    assert f'<li><span lang="en">cannot tell: {doubt}</span><span lang="zh">无法判断：' in page
    assert '<span lang="zh">推断得出：动作，按' in page
    told = re.findall('<span lang="zh">无法判断：(.*?)</span>', page)
    assert told
    assert str(doubt) not in told[0]


LATE = (
    "rank 2: actions: for 0.012 s their input was there and nothing ran yet, longer than usual; "
    "half of it counts as waiting, half as the rank's own work"
)
HOLLOW = "rank 1: actions: nothing ran for 0.0165 s at their ends, and it is not in their compute"


@pytest.mark.parametrize("told", [LATE, HOLLOW])
def test_what_a_busy_machine_leaves_unsure_is_said_in_both_languages(told):
    shown = sentence(f"cannot tell: {told}")
    assert f'<span lang="zh">无法判断：{told[:6]}：动作：' in shown
    assert not re.search("their|nothing", shown[shown.index("无法判断") :])


def test_what_is_left_out_of_a_step_is_said_in_both_languages():
    for recovered in (EVALUATED, REHEARSED):
        assert "不计入" in sentence(f"recovered: {recovered}")


def test_what_is_seldom_not_told_is_in_english():
    assert '<span lang="zh">无法判断：a {0} &lt;b&gt;</span>' in sentence("cannot tell: a {0} <b>")


def test_a_known_name_stands_there_in_both_languages():
    assert translated("model") == '<span lang="en">model</span><span lang="zh">模型</span>'
    assert translated("<b>") == "&lt;b&gt;"
    page = html(gpipe(), facts=[("layers per stage", "4 4")], title="unbubble demo: the naive plan")
    assert '<span lang="zh">每个阶段的层数</span>' in page
    assert '<span lang="zh">unbubble demo：朴素计划</span></h1>' in page


@pytest.mark.parametrize("name", [zh for _, _, zh, _ in CLASSES])
def test_classes_have_the_names_of_the_readme(name):
    """负载不均 here was 不均衡 there and in the glossary."""
    stem = name.partition("（")[0]
    assert stem in (ROOT / "README.zh-CN.md").read_text()


def test_a_prediction_says_which_measurement_it_is_beside():
    """−33.5 % at the head, of the step that is drawn, and −33.9 % at the foot, of the median."""
    page = html(gpipe(), as_measured(gpipe(forward=3)))
    assert "against measured, the step drawn below" in page
    assert "与实测（下方所绘的一步）相差" in page
    assert "drawn below" not in html(gpipe(), gpipe(forward=3))
