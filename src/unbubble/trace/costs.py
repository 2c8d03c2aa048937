"""Costs: what the actions of measured steps took, to predict other steps of the same stages.

Everything is a mean, since a step is a sum: medians of the same steps predict it too short.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean, median_low
from typing import Any, NamedTuple

from unbubble.action import JOINED, KIND_MASK, STAGE_MASK, STAGE_SHIFT, Kind
from unbubble.costs import TIME_OF, Costs, Duration, Edge, StageCosts, Tail
from unbubble.errors import InputError
from unbubble.schedule import Placement
from unbubble.simulate import Timeline
from unbubble.simulate.waits import waits

TAIL = (Kind.REDUCE_GRAD, Kind.CLIP, Kind.OPTIMIZER)
_SENDS = (Kind.SEND_F, Kind.SEND_B)
_RECEIVES = (Kind.RECV_F, Kind.RECV_B)

Found = dict[tuple[int, Kind], list[Duration]]
"""Durations by placed stage and kind."""


def observed_costs(steps: Sequence[Timeline]) -> Costs:
    """Costs by stage from measured steps of one placement: its actions, the posts of transfers, the
    edges, the runtime's own gaps and the tail.

    A kind that no step holds is left out, so that a schedule in need of it is refused. Recompute is
    taken out of B and of I, so that it stands on its own and both take as long as before. What W
    and an overlapped pair repeat stays in them, since costs have no place for it.
    """
    if not steps:
        raise InputError("there are no measured steps to take costs from")
    first = steps[0]
    stages: list[dict[str, Any]] = [{} for _ in range(first.schedule.num_stages)]
    seen: Found = defaultdict(list)
    repeated: dict[tuple[int, Kind], list[int]] = defaultdict(list)
    edges: dict[tuple[int, int], list[int]] = defaultdict(list)
    tails: dict[Kind, list[int]] = defaultdict(list)
    for step in steps:
        found: Found = defaultdict(list)
        for stage, kind, parts, again in _actions(step):
            found[stage, kind].append(parts)
            seen[stage % len(stages), kind].append(parts)
            repeated[stage % len(stages), kind].append(again)
        for kind in TAIL:
            tails[kind].append(_longest(found, kind, step.schedule.placement))
        for transfer in step.transfers:
            if transfer.source != transfer.destination:
                edges[transfer.source, transfer.destination].append(transfer.end - transfer.start)
    for (stage, kind), rows in seen.items():
        if kind in TIME_OF:
            stages[stage][TIME_OF[kind]] = Duration(*map(_mean, zip(*rows, strict=True)))
    for stage, times in enumerate(stages):
        kinds = [k for k in (Kind.B, Kind.I) if TIME_OF[k] in times]
        if again := min((_mean(repeated[stage, kind]) for kind in kinds), default=0):
            times["recompute"] = Duration(again)
            for name in map(TIME_OF.__getitem__, kinds):
                times[name] = times[name]._replace(compute=times[name].compute - again)

    def host(kinds: tuple[Kind, ...]) -> int:
        return _mean(row.total for (_, kind), rows in seen.items() if kind in kinds for row in rows)

    return Costs(
        stages=tuple(StageCosts(name=f"stage {s}", **row) for s, row in enumerate(stages)),
        unit=first.unit,
        ticks_per_unit=first.ticks_per_unit,
        send_host=host(_SENDS),
        recv_host=host(_RECEIVES),
        edge=Edge(latency=_mean(time for times in edges.values() for time in times)),
        edges={ranks: Edge(latency=_mean(times)) for ranks, times in sorted(edges.items())},
        action_overhead=_mean(gap for step in steps for gap in _own_gaps(step)),
        tail=Tail(
            reduce=_mean(tails[Kind.REDUCE_GRAD]),
            clip=_mean(tails[Kind.CLIP]),
            optimizer=_mean(tails[Kind.OPTIMIZER]),
        ),
    )


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
    seen: Found = defaultdict(list)
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


def _mean(ticks: Iterable[int]) -> int:
    values = [*ticks]
    return round(fmean(values)) if values else 0


def _own_gaps(timeline: Timeline) -> list[int]:
    """The gaps in front of actions that waited for nothing (the first ones left out); where posts
    of transfers are actions themselves, these fill them."""
    if timeline.schedule.with_comms:
        return []
    first = {row[0] for row in timeline.schedule.codes if row}
    return [w.end - w.start for w in waits(timeline)
            if w.cause is None and w.action.codes[0] not in first]  # fmt: skip


def _longest(found: Found, kind: Kind, placement: Placement) -> int:
    """The longest time that any rank spends with a kind of the tail."""
    spent = [0] * placement.ranks
    for (stage, other), rows in found.items():
        if other is kind:
            spent[placement.rank_of[stage]] += sum(row.total for row in rows)
    return max(spent)
