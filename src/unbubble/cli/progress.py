"""Progress of a long command: one line that changes on a terminal, nothing elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from unbubble.runtime.launch import Progress


@contextmanager
def progress(label: str) -> Iterator[Progress]:
    """A function that shows what is being done now; the line goes at the end of the block."""
    if not sys.stderr.isatty():
        yield lambda line: None
        return
    from rich.console import Console

    with Console(stderr=True).status(label) as status:
        yield lambda line: status.update(f"{label}: {line}")
