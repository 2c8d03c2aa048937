"""Terminal: text for people, in the columns that their terminal has.

Sentences are wrapped between words and after commas. A table that is too wide has its last column
of words wrapped; else what stands in its first column goes over the rows as a line of its own; else
it goes on below with the first columns again, as many as tell the rows apart. Where output goes to
no terminal nothing is wrapped: programs read those lines (the variable COLUMNS gives a width all
the same).
"""

import re
from collections.abc import Callable, Mapping, Sequence

Row = Mapping[str, str]

_LEAST = 20
_NUMBER = re.compile(r"[-−+]?(\d+\.?\d*|\d*\.\d+|\d{1,3}(,\d{3})+)(e[-+]?\d+)?( ±[\d.]+)?( ?%)?|-")


def columns() -> int:
    """The width of the terminal; 0 where there is none."""
    from shutil import get_terminal_size  # takes long to load, and JSON needs no width

    return get_terminal_size((0, 0)).columns


def wrapped(text: str, width: int | None = None, indent: int = 2) -> str:
    """The text with lines of at most `width` columns (default: those of the terminal; 0: any).

    What goes on in a further line is indented by as much as the line was, and by `indent` more.
    Words are never broken, so that what is copied stays whole.
    """
    width = columns() if width is None else width
    lines: list[str] = []
    for line in text.split("\n"):
        if not width or len(line) <= width:
            lines.append(line)
            continue
        lead = " " * (len(line) - len(line.lstrip()))
        further = lead + " " * indent
        first, *rest = _filled(line.lstrip(), max(width - len(lead), _LEAST))
        lines.append(lead + first)
        if rest:
            left = line.lstrip()[len(first) :].lstrip()
            lines += [further + one for one in _filled(left, max(width - len(further), _LEAST))]
    return "\n".join(lines)


def joined(items: Sequence[str], separator: str, width: int | None = None) -> str:
    """Items in a line, broken between items where it is too long."""
    width = columns() if width is None else width
    lines: list[str] = []
    for item in items:
        if lines and (not width or len(lines[-1] + separator + item) <= width):
            lines[-1] += separator + item
        else:
            lines.append(f"  {item}" if lines else item)
    return "\n".join(lines)


def table(
    rows: Sequence[Row], width: int | None = None, head: Callable[[str], str] = str
) -> list[str]:
    """The lines of rows with the same keys, the keys as head, which `head` dresses up; numbers to
    the right, words to the left."""
    width = columns() if width is None else width
    shown = {key: [key, *(row[key] for row in rows)] for key in rows[0]}
    if width and _breadth(shown) > width:
        return _narrow(shown, width, head)
    return _lines(shown, head)


def _lines(shown: Mapping[str, Sequence[str]], head: Callable[[str], str]) -> list[str]:
    aligned = []
    for cells in shown.values():
        breadth = max(map(len, cells))
        right = _numbers(cells)
        aligned.append([cell.rjust(breadth) if right else cell.ljust(breadth) for cell in cells])
    first, *lines = ("  ".join(across).rstrip() for across in zip(*aligned, strict=True))
    return [head(first), *lines]


def _narrow(
    shown: Mapping[str, Sequence[str]], width: int, head: Callable[[str], str]
) -> list[str]:
    name, *others = shown
    *before, last = shown
    room = width - _breadth({key: shown[key] for key in before}) - 2
    if not _numbers(shown[last]) and room >= max(_LEAST, len(last)):
        return _last_filled(shown, last, room, head)
    rest = {key: shown[key] for key in others}
    if others and not _numbers(shown[name]) and _breadth(rest) + 2 <= width:
        return _names_over(shown[name], rest, head)
    again = _telling(shown)
    others = list(shown)[len(again) :]
    lines: list[str] = []
    while others:
        count = 1
        part = {key: shown[key] for key in (*again, *others[:count])}
        while (
            count < len(others) and _breadth(part | {others[count]: shown[others[count]]}) <= width
        ):
            part[others[count]] = shown[others[count]]
            count += 1
        lines += [*([""] if lines else []), *_lines(part, head)]
        others = others[count:]
    return lines


def _telling(shown: Mapping[str, Sequence[str]]) -> list[str]:
    """The first column, and those of counts behind it until no two rows are alike: v, m."""
    (name, cells), *rest = shown.items()
    names, rows = [name], list(cells)
    for key, counts in rest[:-1]:
        if len(set(rows)) == len(rows) or not all(cell.isdecimal() for cell in counts[1:]):
            break
        names.append(key)
        rows = [f"{row} {cell}" for row, cell in zip(rows, counts, strict=True)]
    return names


def _last_filled(
    shown: Mapping[str, Sequence[str]], last: str, room: int, head: Callable[[str], str]
) -> list[str]:
    """The last column's cells go on below themselves."""
    parts: dict[str, list[str]] = {key: [] for key in shown}
    for across in zip(*shown.values(), strict=True):
        for number, piece in enumerate(_filled(across[-1], room)):
            for key, cell in zip(shown, across, strict=True):
                parts[key].append(piece if key == last else "" if number else cell)
    return _lines(parts, head)


def _names_over(
    names: Sequence[str], rest: Mapping[str, Sequence[str]], head: Callable[[str], str]
) -> list[str]:
    """Each name over the rows that have it, which are indented."""
    title, *below = _lines(rest, lambda text: text)
    lines = [head(names[0]), head(f"  {title}")]
    for before, name, line in zip(["", *names[1:]], names[1:], below, strict=False):
        lines += [*([name] if name != before else []), f"  {line}"]
    return lines


def _breadth(shown: Mapping[str, Sequence[str]]) -> int:
    return sum(max(map(len, cells)) for cells in shown.values()) + 2 * (len(shown) - 1)


def _numbers(cells: Sequence[str]) -> bool:
    """Whether a column holds numbers or the dash of a missing one; 1f1b is none."""
    return all(not cell or _NUMBER.fullmatch(cell) for cell in cells[1:])


def _filled(text: str, room: int) -> list[str]:
    """The text in lines of at most `room` columns, broken at spaces and after commas."""
    lines = [""]
    for piece in re.findall(r"[^ ,]*[ ,]*", text):
        if lines[-1] and len((lines[-1] + piece).rstrip()) > room:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]
