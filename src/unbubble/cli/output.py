"""What commands print: one JSON object, or a few lines and a table for people."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import click

from unbubble.quantity import handy_unit
from unbubble.terminal import table, wrapped


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


def number(value: Fraction | int) -> str:
    """A number of at most six digits behind which nothing is hidden by zeros."""
    return f"{float(value):.6g}"


class Clock(NamedTuple):
    """How the times of one answer are printed: all in one unit that suits the longest.

    `unit` may be empty; `factor` of it make one of the costs' unit, in which JSON has them.
    """

    unit: str
    factor: int

    @classmethod
    def suiting(cls, longest: Fraction | int, unit: str) -> "Clock":
        return cls(*handy_unit(longest, unit))

    def number(self, time: Fraction | int) -> str:
        return number(time * self.factor)

    def text(self, time: Fraction | int) -> str:
        return f"{self.number(time)} {self.unit}".rstrip()

    def head(self, what: str) -> str:
        """The head of a column of times."""
        return f"{what} {self.unit}".rstrip()


def say(text: str) -> None:
    """Lines for people, wrapped where the terminal is narrower."""
    click.echo(wrapped(text))


def warn(text: str) -> None:
    """A sentence on standard error, in the program's name."""
    click.echo(wrapped(f"unbubble: {text}"), err=True)


def print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Rows with the same keys, the keys as head."""
    for line in table(rows, head=partial(click.style, bold=True)):
        click.echo(line)
