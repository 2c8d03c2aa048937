"""Reports: what people look at, made from any Timeline, simulated or measured by the same code.

Terminal (`text`), picture (`svg`), Perfetto (`chrome`), page (`html`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from unbubble.files import replacing
from unbubble.simulate import Timeline

if TYPE_CHECKING:
    from unbubble.attribution import Attribution
    from unbubble.costs import Costs
    from unbubble.runtime.gradients import Gradients

__all__ = ["write"]


class About(TypedDict, total=False):
    """What a page says beside its timelines; see `unbubble.report.html.html`."""

    title: str
    facts: Sequence[tuple[str, str]]
    attributions: "Sequence[Attribution] | None"
    costs: "Costs | None"
    memory_limit_bytes: int | None
    gradients: "Mapping[str, Gradients]"
    warnings: Sequence[str]


def write(
    timeline: Timeline,
    *,
    measured: Timeline | None = None,
    svg: str | Path | None = None,
    chrome: str | Path | None = None,
    html: str | Path | None = None,
    **about: Unpack[About],
) -> None:
    """Write the named files, each of them whole or not at all; `about` is for the page.

    Raises InputError where the two timelines do not fit together, OSError where a file cannot be
    written.
    """
    contents: list[tuple[str | Path, bytes]] = []
    if svg is not None:
        from unbubble.report.svg import svg as make_svg

        contents.append((svg, make_svg(timeline, measured).encode()))
    if chrome is not None:
        from unbubble.report.chrome import chrome as make_chrome

        contents.append((chrome, make_chrome(timeline, measured)))
    if html is not None:
        from unbubble.report.html import html as make_html

        contents.append((html, make_html(timeline, measured, **about).encode()))
    for path, content in contents:
        with replacing(path) as file:
            file.write(content)
