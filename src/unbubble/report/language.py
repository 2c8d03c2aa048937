"""Both languages of a page: English and Chinese side by side, one of them shown by the style."""

import re
from html import escape

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def both(english: str, chinese: str) -> str:
    """Escaped text in both languages, each marked with its `lang`."""
    if english == chinese:
        return clean(english)
    return f'<span lang="en">{clean(english)}</span><span lang="zh">{clean(chinese)}</span>'


def clean(text: object) -> str:
    """Any text as HTML or XML; what neither can hold is shown as U+FFFD."""
    return escape(_UNPRINTABLE.sub("\ufffd", str(text)))
