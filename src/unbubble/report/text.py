"""A timeline as text, read like a printed figure.

    rank 0  0 1 2 3 . . a A b B     digits: forwards, by microbatch; letters: backwards (a is 0)
    rank 1  . 0 a 1 A b 2+c . .     capitals: weight gradients; 2+c an overlapped pair; . idle

A full backward and an input gradient share the small letters: where capitals follow, it was split.
Microbatches above 9 are written 10, 11, …, those above z aa, ab, …, and the cells get wider.
"""

import re
import shutil
from math import gcd
from typing import NamedTuple

from unbubble.action import Kind
from unbubble.errors import InputError
from unbubble.quantity import handy_unit, percent
from unbubble.report.palette import WORDS
from unbubble.report.rows import (
    Block,
    blocks,
    has_tail,
    kinds,
    part_of_run,
    shown_ranks,
    virtual_stages,
    window,
)
from unbubble.simulate import Timeline

MAX_CELLS = 20_000
"""The longest exact drawing, in cells a rank."""
MAX_ROWS = 32
"""Ranks that `render` shows; of more, this many evenly spread ones."""

FILL = {Kind.F: "-", Kind.B: "=", Kind.I: "~", Kind.W: "#", Kind.OVERLAP_F_B: "="}
"""What the rest of an action's columns show after its mark, by kind."""
TAIL = "%"
"""What the tail of a step shows: gradient reduction, clipping, optimizer."""

_COLORS = {Kind.F: (75, 68), Kind.B: (215, 172), Kind.I: (218, 175), Kind.W: (79, 36)}
"""Background of a kind on even and odd virtual stages, in the terminal's 256 colours."""
_ESCAPE = re.compile("\x1b\\[[0-9;]*m")


class Stretch(NamedTuple):
    """Columns `first` … `last` − 1 of a row hold `block`, written as `mark` if there is room."""

    first: int
    last: int
    mark: str
    block: Block


def mark(kind: Kind, microbatch: int) -> str:
    """A microbatch as its kind writes it: 3 (F), d (B or I), D (W)."""
    if kind is Kind.F:
        return str(microbatch)
    letters = ""
    while microbatch >= 0:
        letters = chr(ord("a") + microbatch % 26) + letters
        microbatch = microbatch // 26 - 1
    return letters.upper() if kind is Kind.W else letters


def draw(timeline: Timeline) -> list[str]:
    """The exact grid, one line a rank, as drawn in the docstrings of the schedule families.

    One cell is the longest time that divides every start and end, so that equal times of 1 give
    one cell an action. Only compute is drawn. Raises InputError beyond 20,000 cells.
    """
    begin, _ = window(timeline)
    step = _cell(timeline)
    cells = timeline.makespan // step
    if cells > MAX_CELLS:
        raise InputError(
            f"the drawing needs {cells} cells a rank and {MAX_CELLS} are drawn at most; use "
            "render, which scales to the width"
        )
    rows = [_exact(timeline, rank, begin, step) for rank in range(timeline.ranks)]
    return _lines(timeline, [[s for s in row if s.block.action.is_compute] for row in rows], cells)


def _lines(timeline: Timeline, rows: list[list[Stretch]], cells: int) -> list[str]:
    width = max((_cell_width(stretch) for row in rows for stretch in row), default=1)
    return [_label(rank, timeline) + _grid_line(row, cells, width) for rank, row in enumerate(rows)]


def render(timeline: Timeline, *, width: int | None = None, color: bool = False) -> str:
    """The timeline for a terminal of `width` columns (default: this one), with its legend.

    Where the exact grid fits it is shown; where it does not, columns are a time each and an action
    is its mark followed by its kind's fill (see `FILL`), or only the fill where room is short.
    """
    width = max(width or shutil.get_terminal_size((100, 24)).columns, 20)
    ranks = shown_ranks(timeline.ranks, MAX_ROWS)
    lines = [] if color else _grid(timeline, ranks, width)
    filled = not lines
    lines = lines or _filled(timeline, ranks, width, color)
    if len(ranks) < timeline.ranks:
        lines.append(f"{len(ranks)} of {timeline.ranks} ranks are shown")
    lines += _wrapped(_legend(timeline, filled, color), width)
    return "\n".join(lines + _wrapped(_summary(timeline), width))


def _grid(timeline: Timeline, ranks: list[int], width: int) -> list[str]:
    """The exact grid with the step's tail, or nothing where it is wider than `width`."""
    begin, end = window(timeline)
    step = _cell(timeline)
    cells = (end - begin) // step
    if 2 * cells > width:
        return []
    rows = [_exact(timeline, rank, begin, step) for rank in range(timeline.ranks)]
    lines = _lines(timeline, rows, cells)
    return [lines[rank] for rank in ranks] if len(lines[0]) <= width else []


def _filled(timeline: Timeline, ranks: list[int], width: int, color: bool) -> list[str]:
    """Marks and fills, at a whole number of columns a cell where that fits."""
    begin, end = window(timeline)
    step = _cell(timeline)
    cells = (end - begin) // step
    columns = width - len(_label(0, timeline))
    scale = min(columns // cells, 4) if 0 < cells <= columns else 0
    lines = []
    for rank in ranks:
        if scale:
            row = _exact(timeline, rank, begin, step, scale)
            line = _line(row, cells * scale, color)
        else:
            line = _line(_rounded(timeline, rank, begin, end, columns), columns, color)
        lines.append(_label(rank, timeline) + line)
    return lines


def _cell(timeline: Timeline) -> int:
    """The longest time that divides every start and end, counted from the first start."""
    begin, _ = window(timeline)
    step = 0
    for row in (*timeline.starts, *timeline.ends):
        step = gcd(step, *(tick - begin for tick in row))
        if step == 1:
            break
    return max(step, 1)


def _label(rank: int, timeline: Timeline) -> str:
    return f"rank {rank:>{len(str(timeline.ranks - 1))}}  "


def _mark(block: Block) -> str:
    if not block.action.is_compute:
        return TAIL
    return "+".join(mark(part.kind, part.microbatch) for part in block.action.parts)


def _exact(timeline: Timeline, rank: int, begin: int, step: int, scale: int = 1) -> list[Stretch]:
    """A row at exactly `scale` columns for each `step` of time."""
    return [
        Stretch(
            (block.start - begin) // step * scale,
            (block.end - begin) // step * scale,
            _mark(block),
            block,
        )
        for block in blocks(timeline, rank)
    ]


def _rounded(timeline: Timeline, rank: int, begin: int, end: int, columns: int) -> list[Stretch]:
    """A row scaled to `columns`; a mark that has no room for all of itself is dropped."""
    length = max(end - begin, 1)

    def column(tick: int) -> int:
        return ((tick - begin) * columns * 2 + length) // (2 * length)

    row = []
    for block in blocks(timeline, rank):
        text = _mark(block)
        fits = (block.end - block.start) * columns >= len(text) * length
        row.append(Stretch(column(block.start), column(block.end), text if fits else "", block))
    return row


def _cell_width(stretch: Stretch) -> int:
    """Columns that one cell needs; a pair of at least two cells has its parts side by side."""
    if stretch.last - stretch.first > 1:
        return max(map(len, stretch.mark.split("+")))
    return len(stretch.mark)


def _grid_line(row: list[Stretch], cells: int, width: int) -> str:
    texts, joined = ["."] * cells, set[int]()
    for first, last, text, _ in row:
        length = last - first
        if "+" in text and length > 1:
            forward, backward = text.split("+")
            half = length // 2
            texts[first:last] = [forward] * half + [backward] * (length - half)
            joined.update(range(first + 1, last))
        else:
            texts[first:last] = [text] * length
    return "".join(
        ("" if i == 0 else "+" if i in joined else " ") + f"{text:>{width}}"
        for i, text in enumerate(texts)
    )


def _line(row: list[Stretch], columns: int, color: bool) -> str:
    parts, at = [], 0
    for first, last, text, block in row:
        if last <= first:
            continue
        parts.append(_idle(first - at, color))
        at, room = last, last - first
        kind = block.action.kind
        if kind is Kind.OVERLAP_F_B:
            forward, backward = text.split("+") if text and len(text) <= room else ("", "")
            left = max(room // 2, len(forward))
            if len(forward + backward) < room:
                backward = "+" + backward if text else ""
            parts.append(_part(forward, left, Kind.F, block.chunks[0], color))
            parts.append(_part(backward, room - left, Kind.B, block.chunks[1], color))
        else:
            parts.append(
                _part(text if len(text) <= room else text[-1:], room, kind, block.chunks[0], color)
            )
    parts.append(_idle(columns - at, color))
    return "".join(parts)


def _part(text: str, room: int, kind: Kind, chunk: int, color: bool) -> str:
    if not color:
        return f"{text:{FILL.get(kind, TAIL)}<{room}}"
    background = _COLORS[kind][chunk % 2] if kind in _COLORS else 250
    return f"\x1b[30;48;5;{background}m{text:<{room}}\x1b[0m" if room else ""


def _idle(columns: int, color: bool) -> str:
    dots = "." * columns
    return f"\x1b[2m{dots}\x1b[0m" if color and dots else dots


def _legend(timeline: Timeline, filled: bool, color: bool) -> list[str]:
    """What the marks mean, for the kinds that occur."""
    found = kinds(timeline)
    items = []
    for kind, word in WORDS.items():
        if kind not in found:
            continue
        if kind is Kind.OVERLAP_F_B:
            sample = f"{_part('0', 1, Kind.F, 0, color)}{_part('+a', 2, Kind.B, 0, color)}"
        else:
            sample = _part(mark(kind, 0), 2 if filled else 1, kind, 0, color)
        items.append(f"{sample} {word}")
    if has_tail(found):
        items.append(f"{_part(TAIL, 1, Kind.OPTIMIZER, 0, color)} tail")
    items.append(f"{_idle(1, color)} idle")
    if color and virtual_stages([timeline]) > 1:
        items.append("shades: virtual stages of a rank")
    return items


def _summary(timeline: Timeline) -> list[str]:
    unit, factor = handy_unit(timeline.in_unit(timeline.makespan), timeline.unit)
    longest, span = (timeline.in_unit(t) * factor for t in (timeline.makespan, timeline.span))
    kind = "measured" if timeline.measured else "simulated"
    words, _ = part_of_run(timeline)
    return [
        f"{timeline.schedule.name or 'custom'} ({kind})",
        *([f"{words} of {timeline.schedule.microbatches} microbatches"] if words else []),
        f"makespan {longest:g} {unit}".rstrip(),
        f"span {span:g} {unit}".rstrip(),
        f"bubble {percent(timeline.bubble_fraction)} of ranks × makespan",
        f"by span {percent(timeline.bubble_fraction_span)}",
    ]


def _wrapped(items: list[str], width: int) -> list[str]:
    """Items joined by ` · `, broken between items; colours take no room."""
    lines: list[str] = []
    room = 0
    for item in items:
        length = len(_ESCAPE.sub("", item))
        if lines and length + 3 <= room:
            lines[-1] += f" · {item}"
            room -= length + 3
        else:
            lines.append(item)
            room = width - length
    return lines
