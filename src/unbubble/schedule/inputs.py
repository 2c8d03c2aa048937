"""Inputs: for every compute action, the action whose output it takes.

F of stage s   ←  F of stage s−1            (the first stage: the data)
B, I           ←  B or I of stage s+1       (the last stage: its own F)
W              ←  I of the same stage
"""

from array import array

from unbubble.action import (
    JOINED,
    KIND_MASK,
    MICROBATCH_SHIFT,
    STAGE_MASK,
    STAGE_SHIFT,
    Action,
    Kind,
    receive_for,
)
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import Placement

_KEY = ~(KIND_MASK | JOINED)
_STAGE = 1 << STAGE_SHIFT


def inputs(schedule: Schedule) -> "array[int]":
    """For each code, all ranks joined in order, the position of its input's code; −1 for none.

    Transfers and actions of whole stages take none here, and an input that the schedule does not
    hold is none.
    """
    placement = schedule.placement
    forward: dict[int, int] = {}
    backward: dict[int, int] = {}
    position = 0
    for row in schedule.codes:
        for code in row:
            kind = code & KIND_MASK
            if kind == Kind.F:
                forward[code & _KEY] = position
            elif kind in (Kind.B, Kind.I):
                backward[code & _KEY] = position
            position += 1
    first = [placement.is_first(s) for s in range(len(placement.rank_of))]
    last = [placement.is_last(s) for s in range(len(placement.rank_of))]
    found = array("q")
    for row in schedule.codes:
        for code in row:
            kind, key = code & KIND_MASK, code & _KEY
            stage = code >> STAGE_SHIFT & STAGE_MASK
            if kind == Kind.F:
                found.append(-1 if first[stage] else forward.get(key - _STAGE, -1))
            elif kind in (Kind.B, Kind.I):
                found.append(
                    forward.get(key, -1) if last[stage] else backward.get(key + _STAGE, -1)
                )
            else:
                found.append(backward.get(key, -1) if kind == Kind.W else -1)
    return found


def wanted_send(action: Action, placement: Placement) -> Action | None:
    """The send of what an action makes, where another rank needs it."""
    stage, microbatch = action.stage, action.microbatch
    if action.kind is Kind.F and placement.next_rank[stage] >= 0:
        return Action(Kind.SEND_F, stage, microbatch)
    if action.kind in (Kind.B, Kind.I) and placement.previous_rank[stage] >= 0:
        return Action(Kind.SEND_B, stage, microbatch)
    return None


def wanted_receive(action: Action, placement: Placement) -> Action | None:
    """The receive of what an action needs, where another rank makes it."""
    receive = receive_for(action)
    if receive is None:
        return None
    forward = receive.kind is Kind.RECV_F
    source = (placement.previous_rank if forward else placement.next_rank)[action.stage]
    return receive if source >= 0 else None


assert STAGE_MASK << STAGE_SHIFT < 1 << MICROBATCH_SHIFT
