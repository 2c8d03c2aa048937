"""Primus's per-rank JSON: when every forward and backward of a pipeline rank began and ended.

One file a pipeline rank (`pp_rank_3.json`): iteration → `fwd_start`, `fwd_end`, `bwd_start`,
`bwd_end` by microbatch and `total`, in milliseconds from the iteration's start. Waits for inputs
lie outside; transfers and collectives are not recorded.
"""

from math import isfinite

import msgspec

from unbubble.action import Action, Kind
from unbubble.errors import InputError
from unbubble.files import read_text
from unbubble.trace.names import NO_STAGE
from unbubble.trace.observed import Busy, Observed, RankSteps, Seen
from unbubble.trace.sources import rank_in_name

NS = 10**6
MAX_MILLISECONDS = 1e10


class Iteration(msgspec.Struct):
    """One step of one rank, in milliseconds."""

    total: float
    fwd_start: list[float]
    fwd_end: list[float]
    bwd_start: list[float]
    bwd_end: list[float]


def read(source: str) -> list[RankSteps]:
    """The rank of one file, with all its iterations; stage and rank are those of its name.

    Raises InputError for a file that is not such a trace.
    """
    try:
        found = msgspec.json.decode(read_text(source, "a Primus trace"), type=dict[str, Iteration])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{source}: not a Primus trace: {error}") from None
    rank = rank_in_name(source)
    steps = []
    for name, iteration in found.items():
        if not name.isdecimal() or len(name) > 9:
            raise InputError(f"{source}: iteration {name[:20]!r} is not numbered")
        steps.append(_step(source, rank, int(name), iteration))
    return [RankSteps(rank=rank, source=source, steps=tuple(sorted(steps, key=_number)))]


def _step(source: str, rank: int | None, number: int, iteration: Iteration) -> Observed:
    stage = NO_STAGE if rank is None else rank
    actions = []
    for kind, starts, ends in (
        (Kind.F, iteration.fwd_start, iteration.fwd_end),
        (Kind.B, iteration.bwd_start, iteration.bwd_end),
    ):
        if not len(starts) == len(ends) == len(iteration.fwd_start):
            raise InputError(
                f"{source}: iteration {number} has {len(iteration.fwd_start)} forwards and "
                f"{len(starts)} starts and {len(ends)} ends of {kind.name}; they must be the same"
            )
        for microbatch, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if not 0 <= start <= end <= MAX_MILLISECONDS:
                raise InputError(
                    f"{source}: iteration {number}, {kind.name} of microbatch {microbatch}: "
                    f"{start} to {end} ms is no time of a step"
                )
            actions.append(Seen(Action(kind, stage, microbatch), _ns(start), _ns(end)))
    if not actions or not isfinite(iteration.total):
        raise InputError(f"{source}: iteration {number} holds no action, or no total")
    actions.sort(key=lambda seen: (seen.start, seen.end))
    finish = max(_ns(min(iteration.total, MAX_MILLISECONDS)), max(seen.end for seen in actions))
    working = sum(seen.end - seen.start for seen in actions)
    return Observed(
        rank=rank or 0,
        source=source,
        step=number,
        begin=0,
        finish=finish,
        busy=Busy(working, 0, finish - working),
        actions=tuple(actions),
    )


def _ns(milliseconds: float) -> int:
    return round(milliseconds * NS)


def _number(step: Observed) -> int:
    return step.step or 0
