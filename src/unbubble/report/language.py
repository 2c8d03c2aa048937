"""Both languages of a page: English and Chinese side by side, one of them shown by the style."""

import re
from html import escape

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


CHINESE = {
    "unbubble demo: the naive plan": "unbubble demo：朴素计划",
    "unbubble demo: the chosen plan": "unbubble demo：选出的计划",
    "plan": "计划",
    "model": "模型",
    "schedule": "调度",
    "layers per stage": "每个阶段的层数",
    "predicted step": "预测的步骤时间",
    "measured step, median of all": "实测步骤时间，所有步骤的中位数",
    "prediction against that median": "预测与该中位数之差",
    "format": "格式",
    "verdict": "结论",
}
"""Titles and names of facts that commands give to a page."""


def translated(text: str) -> str:
    """One of those in both languages, any other text as it is."""
    return both(text, CHINESE.get(text, text))


def both(english: str, chinese: str) -> str:
    """Escaped text in both languages, each marked with its `lang`."""
    if english == chinese:
        return clean(english)
    return f'<span lang="en">{clean(english)}</span><span lang="zh">{clean(chinese)}</span>'


def clean(text: object) -> str:
    """Any text as HTML or XML; what neither can hold is shown as U+FFFD."""
    return escape(_UNPRINTABLE.sub("\ufffd", str(text)))
