"""What commands print: one JSON object, or a few lines and a table for people."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import click


def plain(value: Any) -> Any:
    """A value as JSON has it: fractions become numbers, integers where they are whole."""
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def print_json(answer: Mapping[str, Any]) -> None:
    """One JSON object on one line."""
    import json

    click.echo(json.dumps(plain(answer), allow_nan=False))


def percent(fraction: Fraction) -> str:
    return f"{float(fraction) * 100:.2f} %"


def number(value: Fraction | int) -> str:
    """A number of at most six digits behind which nothing is hidden by zeros."""
    return f"{float(value):.6g}"


def print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Rows with the same keys, the keys as head; numbers to the right, words to the left."""
    columns = {key: [key, *(row[key] for row in rows)] for key in rows[0]}
    aligned = []
    for cells in columns.values():
        width = max(map(len, cells))
        right = all(map(_is_number, cells[1:]))
        aligned.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    for line, across in enumerate(zip(*aligned, strict=True)):
        text = "  ".join(across).rstrip()
        click.echo(click.style(text, bold=True) if line == 0 else text)


def _is_number(cell: str) -> bool:
    """Whether a cell is a number, in percent or plain, or the dash of a missing one; not 1f1b."""
    try:
        float(cell.removesuffix(" %").replace("−", "-"))
    except ValueError:
        return cell == "-"
    return True
