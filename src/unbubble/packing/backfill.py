"""Backfilling: what comes later runs now, where a rank would wait and nothing is delayed by it.

    in order     0 1 . . . . a 2 b A . B        rank 0 waits for a
    backfilled   0 1 2 . . . a A b B            2 was free to run, and its memory was there

Every rank keeps its order, except that while its next action cannot start, the first later action
runs that can: one that ends before the next one can start, and whose memory is not needed by any
action that it overtakes.
"""

from array import array
from collections.abc import Sequence
from itertools import pairwise

from unbubble.action import KIND_AND_STAGE, KIND_MASK, I, W
from unbubble.costs import Costs
from unbubble.packing import kernel
from unbubble.packing.filling import weights_of
from unbubble.packing.memory import Memory
from unbubble.schedule.order import Schedule
from unbubble.simulate.program import Program

REACH = 24
"""An action overtakes at most so many times p others."""


def late_weights(rows: Sequence["array[int]"], memory: Memory) -> list["array[int]"]:
    """Orders of F and I with every W as late as memory allows: just before an F that needs room,
    or at the end."""
    late = []
    for row, capacity in zip(rows, memory.capacity, strict=True):
        order, held = array("q"), 0
        weights = weights_of(row)
        freed = memory.changes(weights)
        first = made = 0
        for code, change in zip(row, memory.changes(row), strict=True):
            while first < made and held + change > capacity:
                order.append(weights[first])
                held += freed[first]
                first += 1
            order.append(code)
            held += change
            made += code & KIND_MASK == I
        order.extend(weights[first:])
        late.append(order)
    return late


def backfill(schedule: Schedule, costs: Costs, memory: Memory) -> list["array[int]"]:
    """The rows of a schedule of F, I and W, which as it is must fit the memory, backfilled."""
    program, ranks = Program(schedule, costs), schedule.ranks
    codes, starts = program.codes, program.lane_start
    lane_of, queue_of, queue_start = array("i"), array("i"), array("i", [0])
    for rank, row in enumerate(schedule.codes):
        lane_of.extend(array("i", [rank]) * len(row))
        # those of one kind and stage run in order, and so do the W of all stages
        kinds = [*map(KIND_AND_STAGE.__and__, row)]
        one_of = {kind: W if kind & KIND_MASK == W else kind for kind in set(kinds)}
        queues = {one: queue for queue, one in enumerate(set(one_of.values()), queue_start[-1])}
        queue = {kind: queues[one] for kind, one in one_of.items()}
        queue_of.extend(map(queue.__getitem__, kinds))
        queue_start.append(queue_start[-1] + len(queues))
    nodes, order = len(codes), array("i", [-1]) * len(codes)
    kernel.backfill(
        starts, lane_of, queue_start, queue_of, program.needs, program.lag, program.duration,
        memory.changes(codes), array("q", memory.capacity), REACH * ranks,
        array("i", [-1]) * queue_start[-1], order[:], order[:], order[:],
        array("q", [-1]) * nodes, array("q", bytes(8 * ranks)), array("q", bytes(8 * ranks)),
        array("i", bytes(4 * ranks)), array("q", [kernel.NEVER]) * (2 << (ranks - 1).bit_length()),
        order,
    )  # fmt: skip
    return [array("q", map(codes.__getitem__, order[a:b])) for a, b in pairwise(starts)]
