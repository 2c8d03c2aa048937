"""The actions of whole stages that PyTorch's runtime wants beside compute, sends and receives.

    UNSHARD, RESHARD   fetch a stage's sharded parameters before it computes, and free them; a
                       runtime with FSDP refuses to compute without, any other passes over them
    REDUCE_GRAD        after a stage's last backward: its gradients are scaled and reduced; without
                       it PyTorch's runtime leaves them unscaled

They go into the compute-only order, before its sends and receives are put in.
"""

from array import array

from unbubble.action import JOINED, KIND_MASK, STAGE_MASK, STAGE_SHIFT, Kind, pack
from unbubble.schedule.lowering import lower
from unbubble.schedule.order import Schedule

ACTIVE_STAGES = 3
"""Stages of a rank that are unsharded at once: one forward, one backward, one being fetched."""


def for_pytorch(schedule: Schedule, receive: str = "early") -> Schedule:
    """The compute-only schedule as PyTorch's runtime loads it with format="compute_comms"."""
    return lower(add_reduce_grad(add_unshard(schedule)), receive)


def add_reduce_grad(schedule: Schedule) -> Schedule:
    """REDUCE_GRAD after every stage's last B or W."""
    rows = []
    for row in schedule.codes:
        last: dict[int, int] = {}
        for i, code in enumerate(row):
            if code & KIND_MASK in (Kind.B, Kind.W):
                last[code >> STAGE_SHIFT & STAGE_MASK] = i
        ends = {i: stage for stage, i in last.items()}
        order = array("q")
        for i, code in enumerate(row):
            order.append(code)
            if i in ends:
                order.append(pack(Kind.REDUCE_GRAD, ends[i]))
        rows.append(order)
    return schedule.with_rows(rows)


def add_unshard(schedule: Schedule, active: int = ACTIVE_STAGES) -> Schedule:
    """UNSHARD for the next `active` stages that a rank computes on, RESHARD for the others."""
    return schedule.with_rows([_unsharded(row, active) for row in schedule.codes])


def _unsharded(row: "array[int]", active: int) -> "array[int]":
    order = array("q")
    # insertion and removal as in PyTorch, whose order of several reshards is that of a set
    held: set[int] = set()
    for code, upcoming in zip(row, _upcoming(row, active), strict=True):
        if upcoming is not None:
            for stage in [s for s in held if s not in upcoming]:
                held.remove(stage)
                order.append(pack(Kind.RESHARD, stage))
            for stage in upcoming:
                if stage not in held:
                    held.add(stage)
                    order.append(pack(Kind.UNSHARD, stage))
        order.append(code)
    order.extend(pack(Kind.RESHARD, stage) for stage in list(held))
    return order


def _upcoming(row: "array[int]", active: int) -> list[tuple[int, ...] | None]:
    """At every action the next stages to compute on, in order, from itself on; None at the second
    half of an overlapped pair. Both stages of a pair count, also where one is beyond `active`."""
    result: list[tuple[int, ...] | None] = [None] * len(row)
    next_use: dict[int, int] = {}  # of each stage, the nearest first at the end
    i = len(row)
    while i > 0:
        i -= 1
        stage = row[i] >> STAGE_SHIFT & STAGE_MASK
        stages = [stage]
        if i > 0 and row[i - 1] & JOINED:
            i -= 1
            stages.append(row[i] >> STAGE_SHIFT & STAGE_MASK)
        for stage in stages:
            next_use.pop(stage, None)
            next_use[stage] = i
        nearest = list(reversed(next_use.items()))
        taken = nearest[:active]
        if len(nearest) > active and nearest[active][1] == taken[-1][1]:
            taken.append(nearest[active])
        result[i] = tuple(stage for stage, _ in taken)
    return result
