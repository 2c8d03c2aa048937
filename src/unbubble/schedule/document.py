"""A schedule as plain data, as plan files and recordings hold it: also what no CSV can say.

    {"name": "1f1b", "rank_of": [0, 1], "rows": ["0F0,0F1,0B0,0B1", "1F0,…"]}

`rank_of` is the rank of every stage; with `copies` the stages of all copies run on, and `flush` is
false for a pipeline that never drains. Keys at their default are left out.
"""

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from unbubble.action import MICROBATCH_SHIFT, STAGE_MASK, STAGE_SHIFT, parse
from unbubble.document import Value
from unbubble.errors import InputError
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import Placement

MAX_COUNT = 1 << 30


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """The inverse of `schedule_of`."""
    placement = schedule.placement
    document: dict[str, Any] = {"name": schedule.name, "rank_of": list(placement.rank_of)}
    if placement.copies > 1:
        document["copies"] = placement.copies
    if not schedule.flush:
        document["flush"] = False
    document["rows"] = [",".join(map(str, schedule.actions(r))) for r in range(schedule.ranks)]
    return document


def schedule_of(value: Value) -> Schedule:
    """The schedule in a document; every action must be on the rank of its stage.

    Raises InputError that names the key, the action and the rule.
    """
    keys = value.table(("name", "copies", "flush"), ("rank_of", "rows"))
    ranks = [rank.integer(0, MAX_COUNT) for rank in keys["rank_of"].items()]
    if ranks and max(ranks) >= len(ranks):
        raise keys["rank_of"].error(
            f"rank {max(ranks)} is too high for {len(ranks)} stages; ranks run from 0 and each "
            "holds a stage"
        )
    copies = keys["copies"].integer(1, MAX_COUNT) if "copies" in keys else 1
    rows = keys["rows"].items()
    try:
        placement = Placement(tuple(ranks), copies)
        return Schedule.of_codes(
            [_row(row, rank, placement) for rank, row in enumerate(rows)],
            placement,
            name=keys["name"].text() if "name" in keys else "",
            flush=keys["flush"].flag() if "flush" in keys else True,
        )
    except InputError as error:
        if str(error).startswith(value.path):
            raise
        raise value.error(str(error)) from None


def _row(value: Value, rank: int, placement: Placement) -> "array[int]":
    codes_of = lru_cache(maxsize=None)(lambda cell: parse(cell).codes)
    codes = array("q")
    text = value.text()
    for position, cell in enumerate(text.split(",") if text else ()):
        try:
            found: Sequence[int] = codes_of(cell)
            for stage in (code >> STAGE_SHIFT & STAGE_MASK for code in found):
                if stage >= len(placement.rank_of) or placement.rank_of[stage] != rank:
                    raise InputError(f"stage {stage} of {cell} is not on rank {rank}")
            if max(code >> MICROBATCH_SHIFT for code in found) > MAX_COUNT:
                raise InputError(f"the microbatch of {cell} is out of range")
        except InputError as error:
            raise value.error(f"action {position}: {error}") from None
        codes.extend(found)
    if not codes:
        raise value.error("the rank has no action; every rank has at least one")
    return codes
