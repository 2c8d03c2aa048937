"""A timeline as text, read like a printed figure.

    rank 0  0 1 2 3 . . a A b B     digits: forwards, by microbatch; letters: backwards (a is 0)
    rank 1  . 0 a 1 A b 2+c . .     capitals: weight gradients; 2+c an overlapped pair; . idle

A full backward and an input gradient share the small letters: where capitals follow, it was split.
Microbatches above 9 are written 10, 11, …, those above z aa, ab, …, and the cells get wider.
"""

import re
import shutil
from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

from unbubble.action import Kind
from unbubble.errors import InputError
from unbubble.simulate import Timeline

MAX_CELLS = 20_000
"""The longest exact drawing, in cells a rank."""
MAX_ROWS = 32
"""Ranks that `render` shows; of more, this many evenly spread ones."""

FILL = {Kind.F: "-", Kind.B: "=", Kind.I: "~", Kind.W: "#", Kind.OVERLAP_F_B: "="}
"""What the rest of an action's columns show after its mark, by kind."""

_COLORS = {Kind.F: (75, 68), Kind.B: (215, 172), Kind.I: (218, 175), Kind.W: (79, 36)}
"""Background of a kind on even and odd virtual stages, in the terminal's 256 colours."""

_ESCAPE = re.compile("\x1b\\[[0-9;]*m")

_WORDS = {
    Kind.F: "forward",
    Kind.B: "backward",
    Kind.I: "backward_input",
    Kind.W: "backward_weight",
    Kind.OVERLAP_F_B: "overlapped pair",
}


class Block(NamedTuple):
    """Columns `first` … `last` − 1 of a row: one action's mark, kind and virtual stage."""

    first: int
    last: int
    mark: str
    kind: Kind
    chunk: int


def mark(kind: Kind, microbatch: int) -> str:
    """A microbatch as its kind writes it: 3 (F), d (B or I), D (W)."""
    if kind is Kind.F:
        return str(microbatch)
    letters = _letters(microbatch)
    return letters.upper() if kind is Kind.W else letters


def draw(timeline: Timeline) -> list[str]:
    """The exact grid, one line a rank, as drawn in the docstrings of the schedule families.

    One cell is the longest time that divides every start and end, so that equal times of 1 give
    one cell an action. Only compute is drawn. Raises InputError beyond 20,000 cells.
    """
    begin, end = _window(timeline)
    step = _cell(timeline)
    if end - begin > MAX_CELLS * step:
        raise InputError(
            f"the drawing needs {(end - begin) // step} cells a rank and {MAX_CELLS} are drawn at "
            "most; use render, which scales to the width"
        )
    rows = [_blocks(timeline, rank, begin, step, 1) for rank in range(timeline.ranks)]
    width = max((_cell_width(block) for row in rows for block in row), default=1)
    cells = (end - begin) // step
    return [
        f"{_label(rank, timeline.ranks)}  {_grid_line(row, cells, width)}"
        for rank, row in enumerate(rows)
    ]


def render(timeline: Timeline, *, width: int | None = None, color: bool = False) -> str:
    """The timeline for a terminal of `width` columns (default: this one), with its legend.

    Where the exact grid fits it is shown; where it does not, columns are a time each and an action
    is its mark followed by its kind's fill (see `FILL`), or only the fill where room is short.
    """
    width = max(width or shutil.get_terminal_size((100, 24)).columns, 20)
    shown = _shown_ranks(timeline.ranks)
    lines = [] if color else _grid(timeline, shown, width)
    filled = not lines
    lines = lines or _filled(timeline, shown, width, color)
    if len(shown) < timeline.ranks:
        lines.append(f"{len(shown)} of {timeline.ranks} ranks are shown")
    lines += _wrapped(_legend(timeline, filled, color), width)
    return "\n".join(lines + _wrapped(_summary(timeline), width))


def _grid(timeline: Timeline, shown: list[int], width: int) -> list[str]:
    """The exact grid, or nothing where it is wider than `width`."""
    begin, end = _window(timeline)
    if 2 * (end - begin) > width * _cell(timeline):
        return []
    rows = draw(timeline)
    return [rows[rank] for rank in shown] if len(rows[0]) <= width else []


def _filled(timeline: Timeline, shown: list[int], width: int, color: bool) -> list[str]:
    """Marks and fills, at a whole number of columns a cell where that fits."""
    begin, end = _window(timeline)
    step = _cell(timeline)
    cells = (end - begin) // step
    columns = width - len(_label(0, timeline.ranks)) - 2
    scale = min(columns // cells, 4) if 0 < cells <= columns else 0
    lines = []
    for rank in shown:
        if scale:
            blocks = _blocks(timeline, rank, begin, step, scale)
            line = _line(blocks, cells * scale, color)
        else:
            line = _line(_scaled(timeline, rank, begin, end, columns), columns, color)
        lines.append(f"{_label(rank, timeline.ranks)}  {line}")
    return lines


def _letters(number: int) -> str:
    """a … z, aa, ab, …"""
    text = ""
    while number >= 0:
        text = chr(ord("a") + number % 26) + text
        number = number // 26 - 1
    return text


def _window(timeline: Timeline) -> tuple[int, int]:
    """First start and last end over all ranks."""
    starts = [row[0] for row in timeline.starts if row]
    ends = [max(row) for row in timeline.ends if row]
    return (min(starts), max(ends)) if starts else (0, 0)


def _cell(timeline: Timeline) -> int:
    """The longest time that divides every start and end, counted from the first start."""
    begin, _ = _window(timeline)
    step = 0
    for row in (*timeline.starts, *timeline.ends):
        step = gcd(step, *(tick - begin for tick in row))
        if step == 1:
            break
    return max(step, 1)


def _label(rank: int, ranks: int) -> str:
    return f"rank {rank:>{len(str(ranks - 1))}}"


def _compute(timeline: Timeline, rank: int) -> Iterator[tuple[int, int, str, Kind, int]]:
    """Start, end, mark, kind and virtual stage of a rank's compute actions that take time."""
    chunk_of = {stage: i for i, stage in enumerate(timeline.schedule.placement.stages_of(rank))}
    for action, start, end in timeline.events(rank):
        if action.is_compute and end > start:
            text = "+".join(mark(part.kind, part.microbatch) for part in action.parts)
            yield start, end, text, action.kind, chunk_of.get(action.stage, 0)


def _blocks(timeline: Timeline, rank: int, begin: int, step: int, scale: int) -> list[Block]:
    """Blocks at exactly `scale` columns for each `step` of time."""
    return [
        Block((start - begin) // step * scale, (end - begin) // step * scale, text, kind, chunk)
        for start, end, text, kind, chunk in _compute(timeline, rank)
    ]


def _scaled(timeline: Timeline, rank: int, begin: int, end: int, columns: int) -> list[Block]:
    """Blocks rounded to `columns`; a mark that has no room for all of itself is dropped."""
    length = max(end - begin, 1)

    def column(tick: int) -> int:
        return ((tick - begin) * columns * 2 + length) // (2 * length)

    return [
        Block(
            column(start),
            column(last),
            text if (last - start) * columns >= len(text) * length else "",
            kind,
            chunk,
        )
        for start, last, text, kind, chunk in _compute(timeline, rank)
    ]


def _cell_width(block: Block) -> int:
    """Columns that one cell needs; a pair of at least two cells has its parts side by side."""
    if block.kind is Kind.OVERLAP_F_B and block.last - block.first > 1:
        return max(map(len, block.mark.split("+")))
    return len(block.mark)


def _grid_line(blocks: list[Block], cells: int, width: int) -> str:
    texts, joined = ["."] * cells, set[int]()
    for block in blocks:
        length = block.last - block.first
        if block.kind is Kind.OVERLAP_F_B and length > 1:
            forward, backward = block.mark.split("+")
            half = length // 2
            texts[block.first : block.last] = [forward] * half + [backward] * (length - half)
            joined.update(range(block.first + 1, block.last))
        else:
            texts[block.first : block.last] = [block.mark] * length
    return "".join(
        ("" if i == 0 else "+" if i in joined else " ") + f"{text:>{width}}"
        for i, text in enumerate(texts)
    )


def _line(blocks: list[Block], columns: int, color: bool) -> str:
    parts, at = [], 0
    for first, last, text, kind, chunk in blocks:
        if last <= first:
            continue
        parts.append(_idle(first - at, color))
        at, room = last, last - first
        if kind is Kind.OVERLAP_F_B:
            forward, backward = text.split("+") if text and len(text) <= room else ("", "")
            left = max(room // 2, len(forward))
            parts.append(_part(forward, left, Kind.F, chunk, color))
            joint = "+" if left + len(backward) < room else ""
            parts.append(_part(joint + backward, room - left, kind, chunk, color))
        else:
            parts.append(_part(text if len(text) <= room else text[-1:], room, kind, chunk, color))
    parts.append(_idle(columns - at, color))
    return "".join(parts)


def _part(text: str, room: int, kind: Kind, chunk: int, color: bool) -> str:
    if not color:
        return f"{text:{FILL[kind]}<{room}}"
    background = _COLORS[Kind.B if kind is Kind.OVERLAP_F_B else kind][chunk % 2]
    return f"\x1b[30;48;5;{background}m{text:<{room}}\x1b[0m" if room else ""


def _idle(columns: int, color: bool) -> str:
    dots = "." * columns
    return f"\x1b[2m{dots}\x1b[0m" if color and dots else dots


def _shown_ranks(ranks: int) -> list[int]:
    if ranks <= MAX_ROWS:
        return list(range(ranks))
    return [i * (ranks - 1) // (MAX_ROWS - 1) for i in range(MAX_ROWS)]


def _legend(timeline: Timeline, filled: bool, color: bool) -> list[str]:
    """What the marks mean, for the kinds that occur."""
    ranks = range(timeline.ranks)
    found = {action.kind for rank in ranks for action in timeline.schedule.actions(rank)}
    items = []
    for kind, word in _WORDS.items():
        if kind not in found:
            continue
        if kind is Kind.OVERLAP_F_B:
            sample = "0+a"
        else:
            sample = mark(kind, 0) + (FILL[kind] if filled and not color else "")
        shown = _part(sample, len(sample), kind, 0, True) if color else sample
        items.append(f"{shown} {word}")
    return [*items, f"{_idle(1, color)} idle"]


def _summary(timeline: Timeline) -> list[str]:
    unit = f" {timeline.unit}" if timeline.unit else ""
    kind = "measured" if timeline.measured else "simulated"
    return [
        f"{timeline.schedule.name or 'custom'} ({kind})",
        f"makespan {timeline.in_unit(timeline.makespan):g}{unit}",
        f"span {timeline.in_unit(timeline.span):g}{unit}",
        f"bubble {float(timeline.bubble_fraction):.1%} of ranks × makespan",
        f"by span {float(timeline.bubble_fraction_span):.1%}",
    ]


def _wrapped(items: list[str], width: int) -> list[str]:
    """Items joined by ` · `, broken between items."""
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
