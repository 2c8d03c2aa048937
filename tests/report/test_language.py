"""The page's Chinese: whole, and in the words of the glossary."""

import re
from pathlib import Path

import pytest
from tests.report.timelines import as_measured, gpipe

from unbubble.report.charts import CLASSES
from unbubble.report.html import html
from unbubble.report.language import CHINESE, translated

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "src/unbubble" / name for name in ("demo.py", "cli/run.py", "cli/trace.py")]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_the_names_of_all_facts_have_a_chinese_one(source):
    """They were English on the Chinese page."""
    facts = re.search(r"facts=\[(.*?)\],\n", source.read_text(), re.DOTALL)[1]
    names = re.findall(r'\(\s*"([^"]+)",', facts)
    assert names
    assert [name for name in names if name not in CHINESE] == []


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
