"""Published figures, recomputed: a publication is one file here, with its figures and their source.

A further publication is one new file: its `figures()` gives every figure as printed, and ours.
"""

from collections.abc import Callable, Iterable, Iterator

from unbubble.errors import InputError, excerpt, suggestion
from unbubble.validate import (
    controllable_memory,
    dualpipe,
    fixed_orders,
    textbook,
    zero_bubble,
)
from unbubble.validate.figure import Figure

PUBLICATIONS: dict[str, Callable[[], Iterable[Figure]]] = {
    "textbook": textbook.figures,
    "zero-bubble": zero_bubble.figures,
    "controllable-memory": controllable_memory.figures,
    "dualpipe": dualpipe.figures,
    "fixed-orders": fixed_orders.figures,
}


def figures(publication: str | None = None) -> Iterator[tuple[str, Figure]]:
    """The figures of one publication or of all, each with the publication's name.

    Raises InputError for a name that is none.
    """
    if publication is not None and publication not in PUBLICATIONS:
        raise InputError(
            f"no publication is called {excerpt(publication)!r}; "
            f"{suggestion(publication, PUBLICATIONS)}"
        )
    for name, recomputed in PUBLICATIONS.items():
        if publication in (None, name):
            for figure in recomputed():
                yield name, figure
