"""Costs: what the actions of measured steps took, to predict other steps of the same stages.

Everything is the mean of a step, since a step is a sum: medians of the same actions predict it too
short. Of several steps' means it is the median, so that a step that something held up counts once.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean, median, median_low
from typing import Any, NamedTuple

from unbubble.action import (
    JOINED,
    KIND_MASK,
    SENDS,
    STAGE_MASK,
    STAGE_SHIFT,
    TRANSFER,
    Kind,
    is_compute,
)
from unbubble.costs import TIME_OF, Costs, Duration, Edge, StageCosts, Tail
from unbubble.errors import InputError
from unbubble.simulate import Timeline
from unbubble.simulate.waits import waits

TAIL = (Kind.REDUCE_GRAD, Kind.CLIP, Kind.OPTIMIZER)

Key = tuple[Any, ...]
"""What a figure is of: (kind, stage), ("send",), ("edge", source, destination), …"""


def observed_costs(steps: Sequence[Timeline]) -> Costs:
    """Costs by stage from measured steps of one placement: its actions, the posts of transfers, the
    edges, the runtime's own gaps and the tail.

    A kind that no step holds is left out, so that a schedule in need of it is refused. Recompute is
    taken out of B and of I, so that it stands on its own and both take as long as before; what W
    and an overlapped pair repeat stays in them.
    """
    if not steps:
        raise InputError("there are no measured steps to take costs from")
    first = steps[0]
    means: dict[Key, list[tuple[float, ...]]] = defaultdict(list)
    for step in steps:
        for key, rows in _samples(step).items():
            means[key].append(tuple(map(fmean, zip(*rows, strict=True))))
    usual: dict[Key, list[int]] = {
        key: [round(median(column)) for column in zip(*rows, strict=True)]
        for key, rows in means.items()
    }

    def ticks(*key: Any) -> int:
        return usual.get(key, [0])[0]

    stages: list[dict[str, Duration]] = [{} for _ in range(first.schedule.num_stages)]
    for stage, times in enumerate(stages):
        for kind, name in TIME_OF.items():
            if (kind, stage) in usual:
                times[name] = Duration(*usual[kind, stage][:3])
        kinds = [k for k in (Kind.B, Kind.I) if (k, stage) in usual]
        if again := min((usual[kind, stage][3] for kind in kinds), default=0):
            times["recompute"] = Duration(again)
            for name in map(TIME_OF.__getitem__, kinds):
                times[name] = times[name]._replace(compute=times[name].compute - again)
    edges = sorted(key[1:] for key in usual if key[0] == "edge" and len(key) == 3)
    return Costs(
        stages=tuple(StageCosts(name=f"stage {s}", **row) for s, row in enumerate(stages)),  # type: ignore[arg-type]
        unit=first.unit,
        ticks_per_unit=first.ticks_per_unit,
        send_host=ticks("send"),
        recv_host=ticks("receive"),
        edge=Edge(latency=ticks("edge")),
        edges={ranks: Edge(latency=ticks("edge", *ranks)) for ranks in edges},
        action_overhead=ticks("gap"),
        tail=Tail(
            reduce=ticks(Kind.REDUCE_GRAD), clip=ticks(Kind.CLIP), optimizer=ticks(Kind.OPTIMIZER)
        ),
    )


def _samples(step: Timeline) -> dict[Key, list[tuple[int, ...]]]:
    """What a step's mean is taken of, in ticks: by kind and stage of the model the three parts and
    the recompute; posts; times on the wire, of each edge and of all; gaps; the tail's kinds."""
    schedule = step.schedule
    found: dict[Key, list[tuple[int, ...]]] = defaultdict(list)
    tail: dict[Kind, list[int]] = {}
    rank_of = schedule.placement.rank_of
    gathered = 0
    for stage, kind, parts, again in _actions(step):
        if kind in TIME_OF:
            found[kind, stage % schedule.num_stages].append((*parts, again))
        elif kind in TRANSFER:
            found[("send" if kind in SENDS else "receive",)].append((parts.total,))
        elif kind in TAIL:
            spent = tail.setdefault(kind, [0] * schedule.ranks)
            spent[rank_of[stage]] += parts.total
        elif kind is Kind.UNSHARD and rank_of[stage] == rank_of[0]:
            gathered += parts.total  # all others wait for this rank then
    if gathered:  # once a step, as the reduction is
        spent = tail.setdefault(Kind.REDUCE_GRAD, [0] * schedule.ranks)
        tail[Kind.REDUCE_GRAD] = [time + gathered for time in spent]
    for kind, spent in tail.items():  # the longest time that any rank spends with it
        found[(kind,)].append((max(spent),))
    for transfer in step.transfers:
        ranks = transfer.source, transfer.destination
        if ranks[0] != ranks[1]:
            for key in (("edge",), ("edge", *ranks)):
                found[key].append((transfer.end - transfer.start,))
    for gap in _own_gaps(step):
        found[("gap",)].append((gap,))
    return found


class Usual(NamedTuple):
    """The durations of one kind of action of one stage, in ticks: how often it ran, the least, the
    median and the most of the totals, and the medians of the three parts and of the recompute in
    the compute (0 where it is not known)."""

    stage: int
    rank: int
    kind: Kind
    times: int
    least: int
    median: int
    most: int
    parts: Duration
    recompute: int


def usual(steps: Sequence[Timeline]) -> list[Usual]:
    """Every kind of F, B, I, W and pair of every stage, by stage; the steps have one placement."""
    rank_of = steps[0].schedule.placement.rank_of
    seen: dict[tuple[int, Kind], list[Duration]] = defaultdict(list)
    repeated: dict[tuple[int, Kind], list[int]] = defaultdict(list)
    for step in steps:
        for stage, kind, parts, again in _actions(step):
            seen[stage, kind].append(parts)
            repeated[stage, kind].append(again)
    found = []
    for (stage, kind), rows in sorted(seen.items()):
        if kind in TIME_OF:
            totals = sorted(row.total for row in rows)
            parts = Duration(*map(median_low, zip(*rows, strict=True)))
            spread = totals[0], median_low(totals), totals[-1]
            again = median_low(repeated[stage, kind])
            found.append(Usual(stage, rank_of[stage], kind, len(rows), *spread, parts, again))
    return found


def _actions(timeline: Timeline) -> Iterator[tuple[int, Kind, Duration, int]]:
    """Stage, kind, duration and recompute of every action; a pair is one of its forward's stage."""
    for rank, codes in enumerate(timeline.schedule.codes):
        nothing = [0] * len(codes)
        rows = zip(
            codes,
            timeline.starts[rank],
            timeline.ends[rank],
            timeline.communication[rank] if timeline.communication else nothing,
            timeline.overhead[rank] if timeline.overhead else nothing,
            timeline.recompute[rank] if timeline.recompute else nothing,
            strict=True,
        )
        joined = -1
        for code, start, end, inside, around, again in rows:
            stage, kind = code >> STAGE_SHIFT & STAGE_MASK, Kind(code & KIND_MASK)
            if code & JOINED:
                joined = stage
                continue
            if joined >= 0:
                stage, kind, joined = joined, Kind.OVERLAP_F_B, -1
            yield stage, kind, Duration(end - start - inside - around, inside, around), again


def _own_gaps(timeline: Timeline) -> list[int]:
    """The gaps in front of actions that waited for nothing (the first ones left out), 0 where there
    was none; where posts of transfers are actions themselves, these fill them."""
    if timeline.schedule.with_comms:
        return []
    first = {next(filter(is_compute, row), None) for row in timeline.schedule.codes}
    later = sum(
        is_compute(code) and not code & JOINED and code not in first
        for row in timeline.schedule.codes
        for code in row
    )
    found = [w for w in waits(timeline) if w.action.codes[0] not in first]
    own = [w.end - w.start for w in found if w.cause is None]
    return own + [0] * (later - len(found))
