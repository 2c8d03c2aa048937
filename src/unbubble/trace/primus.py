"""Primus's per-rank JSON (its pipeline visualizer): start and end of every action in ms, by
iteration, each rank on a clock of its own that starts with the iteration.

    {"5": {"total": 3238.9, "memory": 102.3, "fwd_start": […], "fwd_end": […], "bwd_start": […],
           "bwd_end": […]}, …}

Newer files add `fwd_minibatch`, `fwd_chunk` and the like, and weight gradients (`wgrad_start`, …);
the backwards are input gradients then. Transfers, tail and optimizer are not recorded.

Megatron's interleaved schedule is recorded without chunks, but its order is fixed: `config.json`
tells ranks, chunks and microbatches, and how many forwards a rank runs ahead tells the group.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from unbubble.action import Action, Kind
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.files import read_text
from unbubble.schedule import Schedule
from unbubble.trace.intervals import length, union
from unbubble.trace.megascan import NO_TRANSFERS
from unbubble.trace.names import NO_STAGE
from unbubble.trace.observed import About, Busy, Doubt, Observed, RankSteps, Seen
from unbubble.trace.sources import rank_in_name

WHAT = "a Primus trace"
CHUNKS = (
    "model chunks a rank, and the file does not say which stage each is; use another kind of trace"
)
ONE_CHUNK = Doubt(
    About.STAGES,
    "no config.json of Primus lies beside the files, so one model chunk a rank is assumed",
)
BY_ORDER = "stages and microbatches, from the order of Megatron's interleaved schedule"
MAX_MS = 1e12
Times = list[float]


class Iteration(msgspec.Struct, kw_only=True):
    """One iteration of one rank; ms."""

    total: float
    fwd_start: Times
    fwd_end: Times
    bwd_start: Times
    bwd_end: Times
    wgrad_start: Times = []
    wgrad_end: Times = []
    fwd_minibatch: list[int] = []
    bwd_minibatch: list[int] = []
    wgrad_minibatch: list[int] = []
    fwd_chunk: list[int] = []
    bwd_chunk: list[int] = []
    wgrad_chunk: list[int] = []


def read(source: str) -> list[RankSteps]:
    """The one rank of a file, all its iterations.

    Raises InputError that names the file, the iteration and what is wrong in it.
    """
    try:
        found = msgspec.json.decode(read_text(source, WHAT), type=dict[str, Iteration])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{source}: not {WHAT}: {error}") from None
    rank = rank_in_name(source)
    config = _config(Path(source).parent / "config.json")
    ranks, chunks = config.get("pp_size"), config.get("vp_size", config.get("vpp_size", 1))
    if chunks > 1 and (rank is None or ranks is None or rank >= ranks):
        raise InputError(f"{source}: {chunks} {CHUNKS}")
    steps: list[Observed] = []
    for key, one in found.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise InputError(f"{source}: {key[:40]!r} is not the number of an iteration")
        seen = _observed(source, rank or 0, int(key), one)
        if chunks > 1:
            seen = _interleaved(seen, ranks or 1, chunks)
        elif not config:
            seen = replace(seen, unknown=(*seen.unknown, ONE_CHUNK))
        steps.append(seen)
    steps.sort(key=lambda one: one.step or 0)
    return [RankSteps(rank=rank, source=source, steps=tuple(steps), world_size=ranks)]


@lru_cache(maxsize=1)
def _order(ranks: int, microbatches: int, chunks: int, group: int) -> Schedule:
    """Megatron's interleaved schedule, which all iterations of all ranks share."""
    return generate("interleaved-1f1b", ranks, microbatches, chunks, rule="megatron", group=group)


def _interleaved(one: Observed, ranks: int, chunks: int) -> Observed:
    """The actions with the stages and microbatches of Megatron's interleaved schedule, if that is
    how their forwards and backwards follow each other."""
    ran = [seen.action.kind for seen in one.actions]
    microbatches = ran.count(Kind.F) // chunks
    ahead = next((i for i, kind in enumerate(ran) if kind is not Kind.F), len(ran)) - 1
    group = microbatches  # which is so wherever all forwards come first
    if ahead + 1 < chunks * microbatches:
        group = (ahead - 2 * (ranks - 1 - one.rank)) // (chunks - 1)
    try:
        order = list(_order(ranks, microbatches, chunks, group).actions(one.rank))
    except InputError:
        order = []
    if [action.kind for action in order] != ran:
        raise InputError(
            f"{one.source}: iteration {one.step} is in no order of interleaved 1F1B; it has "
            f"{chunks} {CHUNKS}"
        )
    named = [seen._replace(action=a) for seen, a in zip(one.actions, order, strict=True)]
    return replace(one, actions=tuple(named), recovered=(BY_ORDER,))


def _config(path: Path) -> dict[str, int]:
    """The counts of the file that Primus writes beside its records, where it is there."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return {}
    return {
        key: value
        for key, value in found.items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 0
    }


def _observed(source: str, rank: int, number: int, one: Iteration) -> Observed:
    where = f"{source}: iteration {number}"
    columns = {
        Kind.F: (one.fwd_start, one.fwd_end, one.fwd_minibatch, one.fwd_chunk),
        Kind.I if one.wgrad_start else Kind.B: (
            one.bwd_start, one.bwd_end, one.bwd_minibatch, one.bwd_chunk,
        ),
        Kind.W: (one.wgrad_start, one.wgrad_end, one.wgrad_minibatch, one.wgrad_chunk),
    }  # fmt: skip
    actions = sorted(_actions(where, columns), key=lambda seen: seen.start)
    if not actions:
        raise InputError(f"{where} holds no action")
    for before, after in pairwise(actions):
        if after.start < before.start or after.end < before.end:
            raise InputError(f"{where}: {after.action} ends before {before.action} does")
    begin = min(0, actions[0].start)
    finish = max(_ns(one.total, where), actions[-1].end)
    working = length(union((seen.start, seen.end) for seen in actions))
    return Observed(
        rank=rank,
        source=source,
        step=number,
        begin=begin,
        finish=finish,
        busy=Busy(working, 0, finish - begin - working),
        actions=tuple(actions),
        unknown=(NO_TRANSFERS, Doubt(About.TAIL, "the optimizer is not in this kind of trace")),
    )


def _actions(where: str, columns: Mapping[Kind, tuple[Any, ...]]) -> Iterator[Seen]:
    for kind, (starts, ends, microbatches, chunks) in columns.items():
        if len(starts) != len(ends):
            raise InputError(
                f"{where} has {len(starts)} starts and {len(ends)} ends of {kind.name}"
            )
        if any(chunks):
            raise InputError(f"{where} has several {CHUNKS}")
        numbers = microbatches or range(len(starts))
        if len(numbers) != len(starts):
            raise InputError(f"{where}: {len(numbers)} microbatches for {len(starts)} {kind.name}")
        for start, end, number in zip(starts, ends, numbers, strict=True):
            if end < start or not 0 <= number < 1 << 20:
                raise InputError(
                    f"{where}: {kind.name} of microbatch {number} from {start} to {end} ms"
                )
            action = Action(kind, NO_STAGE, number)
            yield Seen(action, _ns(start, where), _ns(end, where))


def _ns(milliseconds: float, where: str) -> int:
    if not -MAX_MS < milliseconds < MAX_MS:
        raise InputError(f"{where} has the time {milliseconds:g}; milliseconds were expected")
    return round(milliseconds * 1e6)
