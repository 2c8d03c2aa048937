"""Medians: what each stage's actions usually took in a measured step, and costs made of them."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median_low
from typing import Any, NamedTuple

from unbubble.action import JOINED, KIND_MASK, STAGE_MASK, STAGE_SHIFT, Kind, is_compute, unpack
from unbubble.costs import TIME_OF, Costs, Duration, Edge, StageCosts, Tail
from unbubble.simulate import Timeline
from unbubble.simulate.waits import waits


class Usual(NamedTuple):
    """The durations of one kind of action of one stage, in ticks: how often it ran, the least, the
    median and the most of the totals, and the medians of the three parts."""

    stage: int
    rank: int
    kind: Kind
    times: int
    least: int
    median: int
    most: int
    parts: Duration


def usual(timeline: Timeline) -> list[Usual]:
    """Every kind of every stage, by stage."""
    found: dict[tuple[int, Kind], list[tuple[int, int, int]]] = defaultdict(list)
    schedule = timeline.schedule
    for rank, codes in enumerate(schedule.codes):
        joined = -1
        for place, code in enumerate(codes):
            if not is_compute(code):
                continue
            if code & JOINED:
                joined = code >> STAGE_SHIFT & STAGE_MASK
                continue
            kind = Kind.OVERLAP_F_B if joined >= 0 else Kind(code & KIND_MASK)
            stage = joined if joined >= 0 else code >> STAGE_SHIFT & STAGE_MASK
            joined = -1
            total = timeline.ends[rank][place] - timeline.starts[rank][place]
            inside = timeline.communication[rank][place] if timeline.communication else 0
            around = timeline.overhead[rank][place] if timeline.overhead else 0
            found[stage, kind].append((total - inside - around, inside, around))
    return [_usual(stage, schedule.placement.rank_of[stage], kind, rows)
            for (stage, kind), rows in sorted(found.items())]  # fmt: skip


def _usual(stage: int, rank: int, kind: Kind, rows: Sequence[tuple[int, int, int]]) -> Usual:
    totals = [sum(row) for row in rows]
    parts = Duration(*(median_low(column) for column in zip(*rows, strict=True)))
    least, most = min(totals), max(totals)
    return Usual(stage, rank, kind, len(rows), least, median_low(totals), most, parts)


def measured_costs(timeline: Timeline) -> Costs:
    """Costs of the medians: stages (of one copy), edges, the runtime's own gaps, the tail."""
    stages: list[dict[str, Any]] = [{} for _ in range(timeline.schedule.num_stages)]
    for one in usual(timeline):
        stages[one.stage % len(stages)].setdefault(TIME_OF[one.kind], one.parts)
    edges = {pair: Edge(latency=ticks) for pair, ticks in wire_medians(timeline).items()}
    typical = median_low(edge.latency for edge in edges.values()) if edges else 0
    return Costs(
        stages=tuple(StageCosts(name=f"stage {s}", **row) for s, row in enumerate(stages)),
        unit=timeline.unit,
        ticks_per_unit=timeline.ticks_per_unit,
        edge=Edge(latency=typical),
        edges=edges,
        action_overhead=_own_gap(timeline),
        tail=_tail(timeline),
    )


def wire_medians(timeline: Timeline) -> dict[tuple[int, int], int]:
    """The median time on the wire between each two ranks, in ticks."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for transfer in timeline.transfers:
        if transfer.source != transfer.destination:
            found[transfer.source, transfer.destination].append(transfer.end - transfer.start)
    return {pair: median_low(times) for pair, times in sorted(found.items())}


def _own_gap(timeline: Timeline) -> int:
    """The median gap in front of an action that waits for nothing (the first ones left out)."""
    first = {row[0] for row in timeline.schedule.codes if row}
    own = [w.end - w.start for w in waits(timeline)
           if w.cause is None and w.action.codes[0] not in first]  # fmt: skip
    return median_low(own) if own else 0


def _tail(timeline: Timeline) -> Tail:
    """The longest of every kind over the ranks."""
    totals: dict[Kind, int] = {}
    for rank, codes in enumerate(timeline.schedule.codes):
        own: dict[Kind, int] = defaultdict(int)
        for place, code in enumerate(codes):
            kind = unpack(code & ~JOINED).kind
            if kind in (Kind.REDUCE_GRAD, Kind.CLIP, Kind.OPTIMIZER):
                own[kind] += timeline.ends[rank][place] - timeline.starts[rank][place]
        for kind, ticks in own.items():
            totals[kind] = max(ticks, totals.get(kind, 0))
    return Tail(
        reduce=totals.get(Kind.REDUCE_GRAD, 0),
        clip=totals.get(Kind.CLIP, 0),
        optimizer=totals.get(Kind.OPTIMIZER, 0),
    )
