"""The tail of a step: gradient reduction, clipping over all ranks, optimizer."""

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

from unbubble.action import KIND_MASK, STAGE_MASK, STAGE_SHIFT, Kind, pack
from unbubble.costs import Costs
from unbubble.schedule.order import Schedule

if TYPE_CHECKING:
    from unbubble.simulate.program import Program


def with_tail(schedule: Schedule, costs: Costs) -> Schedule:
    """The schedule with the tail that the costs ask for as actions of its own.

    At the end of every rank's order: a REDUCE_GRAD of each of its stages, then one CLIP and one
    OPTIMIZER, named by the rank's first stage. With `overlap_reduce` a stage's reduction stands
    behind its last backward instead and runs beside what follows. What the schedule holds already
    is not added again.
    """
    tail = costs.tail
    times = {Kind.REDUCE_GRAD: tail.reduce, Kind.CLIP: tail.clip, Kind.OPTIMIZER: tail.optimizer}
    if not any(times.values()):
        return schedule
    held = {code & KIND_MASK for row in schedule.codes for code in row}
    missing = {kind for kind, time in times.items() if time and kind not in held}
    if not missing:
        return schedule
    rows = []
    for rank, codes in enumerate(schedule.codes):
        stage = schedule.placement.stages_of(rank)[0]
        row = codes[:]
        if Kind.OPTIMIZER in missing:
            row.append(pack(Kind.OPTIMIZER, stage))
        if Kind.CLIP in missing:
            row.insert(_first(row, (Kind.OPTIMIZER,)), pack(Kind.CLIP, stage))
        if Kind.REDUCE_GRAD in missing:
            last = _last_backward(codes)
            end = _first(row, (Kind.CLIP, Kind.OPTIMIZER))
            for late in sorted(last, key=last.__getitem__, reverse=True):
                at = last[late] + 1 if tail.overlap_reduce else end
                row.insert(at, pack(Kind.REDUCE_GRAD, late))
        rows.append(row)
    return replace(schedule, codes=tuple(rows))


def _first(codes: "array[int]", kinds: tuple[Kind, ...]) -> int:
    """Where the first action of these kinds stands; behind all where there is none."""
    return next((i for i, code in enumerate(codes) if code & KIND_MASK in kinds), len(codes))


def _last_backward(codes: "array[int]") -> dict[int, int]:
    """Where each stage's gradients are complete: its last B, I or W."""
    return {
        code >> STAGE_SHIFT & STAGE_MASK: index
        for index, code in enumerate(codes)
        if code & KIND_MASK in (Kind.B, Kind.I, Kind.W)
    }


def link_tail(program: "Program") -> dict[int, int]:
    """Add the lanes that a tail needs; returns the nodes of the reductions that run beside compute.

    Overlapped reductions: a lane a rank, each node behind the reduction's place in the order.
    Clipping: a barrier; a lane of nodes that need what each rank did before, and its last
    overlapped reduction; every rank's CLIP needs the last of them. The i-th CLIP of each rank
    belong together.
    """
    beside: dict[int, int] = {}
    clips: list[list[int]] = []
    last_reduction: dict[int, int] = {}
    for rank in range(program.schedule.ranks):
        seen, reductions, optimizers = 0, [], []
        for index in range(program.rank_start[rank], program.rank_start[rank + 1]):
            kind = program.codes[index] & KIND_MASK
            if kind == Kind.REDUCE_GRAD:
                reductions.append(index)
            elif kind == Kind.OPTIMIZER:
                optimizers.append(index)
            elif kind == Kind.CLIP:
                clips += [[]] * (seen == len(clips))
                clips[seen] = [*clips[seen], index]
                seen += 1
        if program.costs.tail.overlap_reduce and reductions:
            first = len(program.duration)
            beside |= {code: first + i for i, code in enumerate(reductions)}
            _add_lane(program, reductions, [program.duration[code] for code in reductions])
            last_reduction[rank] = first + len(reductions) - 1
            for code in reductions:
                program.duration[code] = 0
            for code in optimizers:
                program.needs[code] = last_reduction[rank]
    for group in clips:
        ahead = [code - 1 for code in group if code not in program.rank_start]
        ahead += last_reduction.values()
        if ahead:
            _add_lane(program, ahead, [0] * len(ahead))
            for code in group:
                program.needs[code] = len(program.duration) - 1
    return beside


def _add_lane(program: "Program", needs: list[int], durations: list[int]) -> None:
    program.needs.extend(needs)
    program.duration.extend(durations)
    program.lag.extend([0] * len(needs))
    program.lane_start.append(len(program.duration))
