"""Groups: which ranks of a job make a pipeline together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from unbubble.errors import InputError
from unbubble.schedule import Placement
from unbubble.trace.layout import parse_layout
from unbubble.trace.layout import pipelines as pipelines_of
from unbubble.trace.names import NO_STAGE
from unbubble.trace.observed import Observed, RankSteps

BY_TURN = "pipelines, from the order of the ranks that hold the same stages"


class Group(NamedTuple):
    """The ranks of a pipeline in order, how many it should have where that is known, and why they
    may be of several."""

    ranks: list[Observed]
    expected: int | None = None
    mixed: str = ""


def groups(
    ranks: Sequence[RankSteps], chosen: Sequence[Observed], layout: str | None
) -> list[Group]:
    """The pipelines: as a layout, the replicas, the process groups or the stages tell, else one."""
    by_rank = {one.rank: one for one in chosen}
    if layout is not None:
        members = pipelines_of(parse_layout(layout))
        world = sum(map(len, members))
        if beyond := [rank for rank in by_rank if rank >= world]:
            raise InputError(
                f"--layout {layout} has {world} ranks; there is a trace of rank {beyond[0]}"
            )
    elif all(one.replica is not None for one in chosen):
        rows: dict[int, list[Observed]] = {}
        for one in chosen:
            rows.setdefault(one.replica or 0, []).append(one)
        most = max(map(len, rows.values()))
        return [Group(row, most) for _, row in sorted(rows.items())]
    elif all(one.pipeline_group for one in chosen):
        members = list(map(list, dict.fromkeys(one.pipeline_group for one in chosen)))
    elif all(seen.action.stage != NO_STAGE for one in chosen for seen in one.actions):
        return _by_stages(chosen)
    else:
        return [Group(list(chosen), ranks[0].world_size)]
    present = [[by_rank[rank] for rank in group if rank in by_rank] for group in members]
    return [Group(here, len(group)) for here, group in zip(present, members, strict=True) if here]


def in_stage_order(ranks: Sequence[Observed], placement: Placement | None) -> list[Observed]:
    """A pipeline's ranks by their first stages, or as the placement numbers them, where their
    actions name stages: a job's ranks may lie in any order."""
    firsts = {
        one.rank: min((a.stage for seen in one.actions for a in seen.action.parts), default=-1)
        for one in ranks
    }
    known = len(placement.rank_of) if placement else 1 << 62
    if not all(NO_STAGE < first < known for first in firsts.values()):
        return list(ranks)
    if placement is None:
        return sorted(ranks, key=lambda one: firsts[one.rank])
    return sorted(ranks, key=lambda one: placement.rank_of[firsts[one.rank]])


def _by_stages(chosen: Sequence[Observed]) -> list[Group]:
    """Ranks that hold the same stages belong to different pipelines: the first of each to the
    first, and so on."""
    found: list[list[Observed]] = []
    times: dict[frozenset[int], int] = {}
    for one in chosen:
        stages = frozenset(a.stage for seen in one.actions for a in seen.action.parts)
        turn = times.get(stages, 0) if stages else 0
        times[stages] = turn + 1
        if turn == len(found):
            found.append([])
        found[turn].append(one)
    mixed = ""
    if len({sum(bool(one.actions) for one in group) for group in found}) > 1:
        mixed = (
            f"{len(found)} pipelines have the same stages and a rank of some is missing, so which "
            "ranks belong together cannot be told; --layout says it"
        )
    if len(found) > 1:
        found = [[replace(one, recovered=(*one.recovered, BY_TURN)) for one in group]
                 for group in found]  # fmt: skip
    return [Group(group, mixed=mixed) for group in found]
