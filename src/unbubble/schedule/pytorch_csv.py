"""PyTorch's schedule CSV, the exchange form: one row a rank, one cell an action.

Both of its formats are read: compute-only, and compute with sends and receives. Empty cells are
PyTorch's idle slots and are dropped. `format_csv` and `parse_csv` are inverse.
"""

import csv
from array import array
from functools import lru_cache

from unbubble.action import KIND_MASK, Kind, parse
from unbubble.errors import InputError
from unbubble.schedule.order import Schedule

_MAX_CELL = 200


def parse_csv(text: str, source: str = "schedule", *, name: str = "") -> Schedule:
    """Read a schedule; a bad cell is named by row and column, counted from 1.

    Raises InputError for a cell that is not an action, for an empty file and for a stage used on
    two ranks. Completeness and deadlock are `check`'s business.
    """
    rows = parse_rows(text, source)
    try:
        return Schedule.of_codes(rows, name=name)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def parse_rows(text: str, source: str = "schedule") -> list["array[int]"]:
    """The rows of a schedule file as codes; its stages may be anywhere."""
    codes_of = lru_cache(maxsize=None)(lambda cell: parse(cell).codes)
    rows: list[array[int]] = []
    try:
        table = list(csv.reader(text.splitlines(), strict=True))
    except csv.Error as error:
        raise InputError(f"{source}: not a CSV file: {error}") from None
    while table and not any(cell.strip() for cell in table[-1]):
        table.pop()
    for number, cells in enumerate(table, 1):
        row = array("q")
        for column, cell in enumerate(cells, 1):
            if not (word := cell.strip()):
                continue
            try:
                if len(word) > _MAX_CELL:
                    raise InputError(f"{word[:20]!r}... is too long for an action")
                row.extend(codes_of(word))
            except InputError as error:
                raise InputError(f"{source}: row {number}, column {column}: {error}") from None
        rows.append(row)
    if not rows:
        raise InputError(
            f"{source}: it holds no action; a schedule has one row a rank, as in 0F0,0B0"
        )
    for number, row in enumerate(rows, 1):
        if not row:
            raise InputError(f"{source}: row {number} is empty; every rank has at least one action")
    return rows


def format_csv(schedule: Schedule) -> str:
    """The schedule as PyTorch's CSV, in the format (compute-only or with comms) that it is in.

    Raises InputError for what that format cannot hold: copies of a stage, a pipeline that never
    flushes, actions of the optimizer.
    """
    if schedule.placement.copies > 1:
        raise InputError(
            f"{schedule.name or 'the schedule'} keeps {schedule.placement.copies} copies of every "
            "stage, and PyTorch's CSV gives a stage to one rank; keep it in a plan file"
        )
    if not schedule.flush:
        raise InputError(
            f"{schedule.name or 'the schedule'} never flushes, and PyTorch's runtime ends every "
            "step with a flush; keep it in a plan file"
        )
    tail = (Kind.CLIP, Kind.OPTIMIZER)
    if any(code & KIND_MASK in tail for row in schedule.codes for code in row):
        raise InputError("PyTorch's CSV has no action for gradient clipping or the optimizer")
    lines = (",".join(map(str, schedule.actions(rank))) for rank in range(schedule.ranks))
    return "\n".join(lines) + "\n"
