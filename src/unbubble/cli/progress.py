"""Progress of a long command: one line that changes on a terminal, nothing elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.status import Status


class Line:
    """The line, called with what is being done now; `above` prints an answer that comes before the
    end, which would else go on behind what the line shows."""

    def __init__(self, label: str, status: "Status | None"):
        self.label = label
        self.status = status

    def __call__(self, doing: str) -> None:
        if self.status:
            self.status.update(f"{self.label}: {doing}")

    def above(self, text: str, *, err: bool = False) -> None:
        if self.status:
            self.status.stop()
        click.echo(text, err=err)
        if self.status:
            self.status.start()


@contextmanager
def progress(label: str) -> Iterator[Line]:
    """The line of a command while the block runs; it goes at the end of the block."""
    if not sys.stderr.isatty():
        yield Line(label, None)
        return
    from rich.console import Console

    with Console(stderr=True).status(label) as status:
        yield Line(label, status)
