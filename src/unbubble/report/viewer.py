"""The data of the canvas viewer (`viewer.js`): every action of one or more timelines.

One column a property: little-endian integers of 32 bits, then bytes, compressed, in base64. Each
rank has its compute in order, both codes of an overlapped pair, the forward first; then what may
run beside it: posted transfers and the tail. `need` is the position of the code whose output one
takes.
"""

import sys
from array import array
from base64 import b64encode
from collections.abc import Sequence
from itertools import accumulate
from typing import Any
from zlib import compress

from unbubble.action import (
    JOINED,
    KIND_MASK,
    MICROBATCH_SHIFT,
    STAGE_MASK,
    STAGE_SHIFT,
    Kind,
    is_compute,
    unpack,
)
from unbubble.report import palette
from unbubble.report.rows import extent, shown_ranks, window
from unbubble.report.scale import scale_for
from unbubble.schedule.inputs import inputs
from unbubble.schedule.order import Schedule
from unbubble.simulate import Timeline, waits

MAX_ACTIONS = 400_000
"""Codes of a timeline that are shown; of a larger one, evenly spread ranks."""

UPPER, LOWER, CAUSE, TRANSFER = 1, 2, 4, 8
"""Flags: the forward and the backward of a pair; the output of `need` is what this action waited
for, and the transfer of it rather than its making."""

_LARGEST = (1 << 31) - 1


def viewer_data(timelines: Sequence[tuple[str, str, Timeline]]) -> dict[str, Any]:
    """What the viewer's `mount` takes, from (English heading, Chinese heading, timeline) each."""
    longest = max((t.in_unit(extent(t)) for _, _, t in timelines), default=0.0)
    return {
        "kinds": [kind.name for kind in Kind],
        "shades": {kind.name: shades for kind, shades in palette.SHADES.items()},
        "other": palette.OTHER,
        "ink": palette.INK,
        "timelines": [
            {"heading": {"en": en, "zh": zh}, **_columns(timeline, longest)}
            for en, zh, timeline in timelines
        ],
    }


def _columns(timeline: Timeline, longest: float) -> dict[str, Any]:
    schedule = timeline.schedule
    begin, end = window(timeline)
    most = max(MAX_ACTIONS * timeline.ranks // max(len(schedule), 1), 2)
    ranks = shown_ranks(timeline.ranks, most)
    quantum = (end - begin) // _LARGEST + 1
    scale = scale_for(timeline, longest)
    starts, durations, gaps, needs = array("i"), array("i"), array("i"), array("i")
    stages, microbatches = array("i"), array("i")
    kinds, chunks, flags = bytearray(), bytearray(), bytearray()
    flat = [code for row in schedule.codes for code in row]
    first = [0, *accumulate(map(len, schedule.codes))]
    order, offsets = _order(schedule, ranks)
    place = array("i", [-1]) * len(flat)  # position in the schedule → position here
    for here, position in enumerate(order):
        place[position] = here
    source = inputs(schedule)
    waiting = {(w.rank, w.end): w for w in waits(timeline)}
    for number, rank in enumerate(ranks):
        chunk_of = {s: i for i, s in enumerate(schedule.placement.stages_of(rank))}
        joined = False
        for position in order[offsets[2 * number] : offsets[2 * number + 2]]:
            code = flat[position]
            kind, stage = code & KIND_MASK, code >> STAGE_SHIFT & STAGE_MASK
            start, last = (
                row[rank][position - first[rank]] for row in (timeline.starts, timeline.ends)
            )
            need = source[position]
            wait = waiting.get((rank, start)) if kind <= Kind.W else None
            flag = UPPER if code & JOINED else LOWER if joined else 0
            if wait and wait.cause is not None and need >= 0 and unpack(flat[need]) == wait.cause:
                flag |= CAUSE | (TRANSFER if wait.by_transfer else 0)
            starts.append((start - begin) // quantum)
            durations.append((last - begin) // quantum - (start - begin) // quantum)
            gaps.append((wait.end - wait.start) // quantum if wait else 0)
            needs.append(place[need] if need >= 0 else -1)
            stages.append(stage)
            microbatches.append((code >> MICROBATCH_SHIFT) - 1)
            kinds.append(kind)
            chunks.append(chunk_of.get(stage, 0) % 4)
            flags.append(flag)
            joined = bool(code & JOINED)
    return {
        "unit": scale.unit,
        "per_unit": float(scale.per_tick * quantum),
        "length": (end - begin) // quantum,
        "ranks": ranks,
        "of_ranks": timeline.ranks,
        "offsets": offsets,
        "count": len(starts),
        "integers": ["start", "duration", "gap", "need", "stage", "microbatch"],
        "bytes": ["kind", "chunk", "flags"],
        "columns": _packed(
            [starts, durations, gaps, needs, stages, microbatches], [kinds, chunks, flags]
        ),
    }


def _order(schedule: Schedule, ranks: Sequence[int]) -> tuple[list[int], list[int]]:
    """Positions of codes by rank, compute first; where each rank's compute and its rest begin."""
    order: list[int] = []
    offsets = [0]
    first = [0, *accumulate(map(len, schedule.codes))]
    for rank in ranks:
        beside: list[int] = []
        for i, code in enumerate(schedule.codes[rank]):
            (order if is_compute(code) else beside).append(first[rank] + i)
        offsets.append(len(order))
        order += beside
        offsets.append(len(order))
    return order, offsets


def _packed(integers: Sequence["array[int]"], small: Sequence[bytearray]) -> str:
    if sys.byteorder == "big":
        for column in integers:
            column.byteswap()
    return b64encode(compress(b"".join([*integers, *small]))).decode()
