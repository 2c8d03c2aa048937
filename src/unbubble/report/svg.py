"""A timeline as a standalone SVG: one or two of them on the same time axis.

Rows are ranks, colours are kinds (see `palette`), shades virtual stages; the grey of a row that
shows through is idle time. An overlapped pair has its forward above and its backward below. The
picture brings its own background, light or dark as the reader's system has it, and loads nothing.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple
from zlib import crc32

from unbubble.action import Kind
from unbubble.errors import InputError
from unbubble.quantity import percent
from unbubble.report import palette
from unbubble.report.language import clean
from unbubble.report.rows import (
    Block,
    blocks,
    extent,
    has_tail,
    kinds,
    part_of_run,
    shown_ranks,
    virtual_stages,
    window,
)
from unbubble.report.scale import Scale, scale_for
from unbubble.simulate import Timeline

MAX_ROWS = 64
"""Ranks shown of each timeline; of more, this many evenly spread ones."""
MAX_TITLED = 1500
"""Up to so many blocks each carries its own tooltip."""

_PAD, _GUTTER, _LINE = 14.0, 62.0, 18.0


class Sheet(NamedTuple):
    """What all parts of the picture share: pixels a tick, and how a time is written."""

    per_tick: float
    scale: Scale
    titled: bool


def svg(
    timeline: Timeline,
    measured: Timeline | None = None,
    *,
    width: int = 960,
    title: str | None = None,
) -> str:
    """The picture as text; `measured` stands below `timeline` on the same axis.

    Raises InputError where the two have different units.
    """
    pictured = [timeline] if measured is None else [timeline, measured]
    if measured is not None and measured.unit != timeline.unit:
        raise InputError(
            f"two timelines share one axis, but their units are {timeline.unit or 'none'!r} and "
            f"{measured.unit or 'none'!r}; simulate from costs in the unit of the measurement"
        )
    longest = max(t.in_unit(extent(t)) for t in pictured) or 1.0
    full = max(width, 240)
    room = full - _GUTTER - _PAD
    body: list[str] = []
    y = _PAD
    for shown in pictured:
        sheet = Sheet(
            per_tick=room / longest / shown.ticks_per_unit,
            scale=scale_for(shown, longest),
            titled=sum(map(len, shown.starts)) <= MAX_TITLED,
        )
        heading = title if title and measured is None else _heading(shown, sheet.scale)
        body.append(_text(_PAD, y + 12, heading, "h"))
        y = _timeline(body, shown, sheet, y + 24)
    scale = scale_for(timeline, longest)
    y = _axis(body, scale.unit, scale.marks(_ticks(timeline, longest), int(room // 80)), room, y)
    y = _legend(body, pictured, full, y)
    return _document("\n".join(body), full, y, _heading(timeline, scale))


def _ticks(timeline: Timeline, length: float) -> Fraction:
    return Fraction(length) * timeline.ticks_per_unit


def _heading(timeline: Timeline, scale: Scale) -> str:
    kind = "measured" if timeline.measured else "simulated"
    shown = ", ".join(
        filter(None, (timeline.schedule.name or "custom", kind, part_of_run(timeline)[0]))
    )
    return (
        f"{shown}: makespan {scale.text(timeline.makespan)}, "
        f"bubble {percent(timeline.bubble_fraction)}"
    )


def _timeline(body: list[str], timeline: Timeline, sheet: Sheet, y: float) -> float:
    """All rows of a timeline from `y` on; returns where they end."""
    begin, end = window(timeline)
    rows = shown_ranks(timeline.ranks, MAX_ROWS)
    pitch = max(7.0, min(27.0, 640 / len(rows)))
    height = pitch - (3 if pitch > 12 else 1)
    every = -(-14 // int(pitch))
    full = (end - begin) * sheet.per_tick
    for i, rank in enumerate(rows):
        if i % every == 0:
            middle = y + height / 2 + 4
            body.append(_text(_GUTTER - 8, middle, f"rank {rank}", "r"))
        body.append(f'<rect class="t" {_box(_GUTTER, y, full, height)}/>')
        pieces = _pieces(blocks(timeline, rank), begin, sheet.per_tick)
        body += (
            _titled(pieces, y, height, begin, sheet) if sheet.titled else _plain(pieces, y, height)
        )
        body += _numbers(pieces, y, height)
        y += pitch
    if len(rows) < timeline.ranks:
        body.append(_text(_GUTTER, y + 11, f"{len(rows)} of {timeline.ranks} ranks", "n"))
        y += _LINE
    return y + 6


class _Piece(NamedTuple):
    """A block's place on a grid of half pixels from the row's left; `alone`: not several joined."""

    first: int
    last: int
    block: Block
    alone: bool


def _pieces(row: list[Block], begin: int, per_tick: float) -> list[_Piece]:
    """The blocks that are wide enough to be seen; slivers alike that touch are joined."""
    pieces: list[_Piece] = []
    for block in row:
        first = round((block.start - begin) * per_tick * 2)
        last = round((block.end - begin) * per_tick * 2)
        if last <= first:
            continue
        if pieces and last - first < 6 and pieces[-1].last == first:
            before = pieces[-1]
            if (before.block.action.kind, before.block.chunks) == (block.action.kind, block.chunks):
                pieces[-1] = before._replace(last=last, alone=False)
                continue
        pieces.append(_Piece(first, last, block, True))
    return pieces


class _Part(NamedTuple):
    """One half of a pair, or a whole other action: its look, place and number."""

    look: str
    x: float
    y: float
    width: float
    height: float
    number: str
    chunk: int


def _parts(piece: _Piece, y: float, height: float) -> Iterator[_Part]:
    x, width = _GUTTER + piece.first / 2, (piece.last - piece.first) / 2
    share = height / len(piece.block.chunks)
    for i, part in enumerate(piece.block.action.parts):
        chunk = piece.block.chunks[i]
        look = f"{part.kind.name}{chunk % 4}" if part.kind in palette.SHADES else "o"
        number = str(part.microbatch) if part.microbatch >= 0 and piece.alone else ""
        inner = width - 1 if width >= 6 else width
        yield _Part(look, x, y + i * share, inner, share, number, chunk)


def _titled(
    pieces: list[_Piece], y: float, height: float, begin: int, sheet: Sheet
) -> Iterator[str]:
    """A rectangle with a tooltip for each action."""
    for piece in pieces:
        block = piece.block
        start, end = (sheet.scale.text(tick - begin) for tick in (block.start, block.end))
        title = f"<title>{block.action}: {start} to {end}</title>"
        for part in _parts(piece, y, height):
            box = _box(part.x, part.y, part.width, part.height)
            yield f'<rect class="{part.look}" {box}>{title}</rect>'


def _plain(pieces: list[_Piece], y: float, height: float) -> Iterator[str]:
    """One thick broken line for all actions of a look: a tenth of the size of rectangles."""
    lines: dict[tuple[str, float], list[str]] = {}
    for piece in pieces:
        for part in _parts(piece, y, height):
            middle = part.y + part.height / 2
            segments = lines.setdefault((part.look, part.height), [])
            segments.append(f"M{part.x:g} {middle:g}h{part.width:g}")
    for (look, thick), segments in lines.items():
        yield f'<path class="s {look}" stroke-width="{thick:g}" d="{"".join(segments)}"/>'


def _numbers(pieces: list[_Piece], y: float, height: float) -> Iterator[str]:
    """Microbatch numbers where they fit."""
    for piece in pieces:
        for part in _parts(piece, y, height):
            if not part.number:
                continue
            tallest = part.height - (5 if part.height > 16 else 1)
            size = int(min(13.0, tallest, (part.width - 2) / (len(part.number) * 0.62)))
            if size >= 8:
                x, middle = part.x + part.width / 2, part.y + part.height / 2 + size * 0.36
                yield _text(x, middle, part.number, "dl"[part.chunk % 2], size)


def _axis(
    body: list[str], unit: str, marks: list[tuple[float, str]], room: float, y: float
) -> float:
    body.append(f'<path class="a" d="M{_GUTTER:g} {y:g}h{room:g}"/>')
    for share, text in marks:
        x = _GUTTER + room * share
        body.append(f'<path class="a" d="M{x:.1f} {y:g}v5"/>')
        body.append(_text(x, y + 18, text, "m"))
    body.append(_text(_GUTTER + room, y + 37, f"time in {unit}" if unit else "time", "e"))
    return y + 28


def _legend(body: list[str], pictured: Sequence[Timeline], width: int, y: float) -> float:
    found = set[Kind]().union(*map(kinds, pictured))
    chunks = virtual_stages(pictured)
    items: list[tuple[list[str], str]] = []
    for kind in palette.SHADES:
        if kind in found:
            items.append(([f"{kind.name}{c}" for c in range(min(chunks, 4))], palette.WORDS[kind]))
    if has_tail(found):
        items.append((["o"], "tail"))
    items.append((["t"], "idle"))
    if chunks > 1:
        items.append(([], "shades: the virtual stages of a rank"))
    if Kind.OVERLAP_F_B in found:
        items.append(([], "two halves: an overlapped pair"))
    x = _GUTTER
    for looks, words in items:
        needed = 16 * len(looks) + 7 * len(words) + 16
        if x > _GUTTER and x + needed > width - 90:
            x, y = _GUTTER, y + _LINE
        for look in looks:
            body.append(f'<rect class="{look}" {_box(x, y, 14, 12)}/>')
            x += 16
        body.append(_text(x + 2, y + 10.5, words, "n"))
        x += 7 * len(words) + 18
    return y + _LINE + 8


def _box(x: float, y: float, w: float, h: float) -> str:
    return f'x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}"'


def _text(x: float, y: float, text: str, look: str, size: float | None = None) -> str:
    own = f' font-size="{size:g}"' if size else ""
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}"{own}>{clean(text)}</text>'


_STYLE = """
#ID{font:13px system-ui,"Segoe UI","Helvetica Neue",Arial,sans-serif;background:#fff}
#ID .c{fill:#fff;stroke:#d9dce2;stroke-width:1px}
#ID .t{fill:#e9ebef}
#ID .a{stroke:#8a909a;fill:none}
#ID .h{font-weight:600}
#ID .h,#ID .r,#ID .n,#ID .m,#ID .e{fill:#22262c}
#ID .r,#ID .e{text-anchor:end}
#ID .m,#ID .d,#ID .l{text-anchor:middle}
#ID .r,#ID .n,#ID .m,#ID .e{font-size:12px}
#ID .d{fill:DARK}
#ID .l{fill:LIGHT}
#ID rect{stroke-width:0}
LOOKS
#ID .s{fill:none}
@media(prefers-color-scheme:dark){
#ID{background:#15181d}
#ID .c{fill:#15181d;stroke:#3a404a}
#ID .t{fill:#2b3038}
#ID .h,#ID .r,#ID .n,#ID .m,#ID .e{fill:#e4e7ec}
}
"""


def _document(body: str, width: int, height: float, label: str) -> str:
    """The picture's root; its styles are bound to an id made from its content, so that several
    pictures may stand in one page."""
    name = f"unbubble-{crc32(body.encode('utf-8', 'replace')):08x}"
    fills = {
        f"{kind.name}{chunk}": fill
        for kind, shades in palette.SHADES.items()
        for chunk, fill in enumerate(shades)
    }
    looks = "\n".join(
        f"#ID .{look}{{fill:{fill};stroke:{fill}}}"
        for look, fill in {**fills, "o": palette.OTHER}.items()
    )
    style = _STYLE.replace("LOOKS", looks)
    style = style.replace("DARK", palette.INK[0]).replace("LIGHT", palette.INK[1])
    label = clean(label)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{name}" role="img" aria-label="{label}" '
        f'width="{width}" height="{height:g}" viewBox="0 0 {width} {height:g}" '
        f'style="max-width:100%;height:auto">\n<style>{style.replace("ID", name)}</style>\n'
        f'<rect class="c" {_box(0.5, 0.5, width - 1, height - 1)} rx="6"/>\n{body}\n</svg>\n'
    )
