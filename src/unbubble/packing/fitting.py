"""Fitting: the shortest of a few schedules that are made for given times from one order."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unbubble.costs import Costs
from unbubble.packing.backfill import backfill, late_weights
from unbubble.packing.filling import Frame, best, shortest, without_weights
from unbubble.packing.memory import Memory
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import Placement

if TYPE_CHECKING:
    from array import array


def fitted(
    rows: Sequence["array[int]"],
    placement: Placement,
    memory: Memory,
    costs: Costs | None,
    *also: Schedule,
) -> Schedule:
    """The shortest by span, for the costs (None: all times equal), of the schedules `also` and of
    those made from the F and I of the rows:

    1. with W as late as memory allows;
    2. that backfilled, for the costs and for equal times; where there is no other order, for costs
       also with W of no time, so that the last I wait for none;
    3. all of these, and `also`, with their W placed anew: for costs the shortest of many ways, for
       equal times one that waits for no W, as no other was found to be shorter.
    """
    equal = Costs.uniform(placement)
    given = without_weights(rows)
    start = Schedule.of_codes(late_weights(given, memory), placement)
    times = [equal] if costs is None else [costs, equal]
    light = () if also or costs is None else (Costs.uniform(placement, backward_weight=0),)
    packed = [Schedule.of_codes(backfill(start, t, memory), placement) for t in (*times, *light)]
    orders = [*also, *packed, start]
    frames: list[list[array[int]]] = []
    for frame in (*(without_weights(order.codes) for order in (*also, *packed)), given):
        if frame not in frames:
            frames.append(frame)
    filled = (Frame(frame, placement, times[0], memory) for frame in frames)
    refilled = (frame.patient() if costs is None else shortest([frame]) for frame in filled)
    return best((*orders, *(one.schedule() for one in refilled)), times[0])
