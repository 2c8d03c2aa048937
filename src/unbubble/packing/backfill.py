"""Backfilling: what comes later runs now, where a rank would wait and nothing is delayed by it.

    in order     0 1 . . . . a 2 b A . B        rank 0 waits for a
    backfilled   0 1 2 . . . a A b B            2 was free to run, and its memory was there

Every rank keeps its order, except that while its next action cannot start, the first later action
runs that can: one that ends before the next one can start, and whose memory is not needed by any
action that it overtakes.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

from unbubble.action import KIND_MASK, MICROBATCH_SHIFT, Kind
from unbubble.costs import Costs
from unbubble.packing.memory import Memory
from unbubble.schedule.order import Schedule
from unbubble.simulate.program import Program

NEVER = 1 << 62
REACH = 24
"""An action overtakes at most so many times p others."""


def late_weights(rows: Sequence["array[int]"], memory: Memory) -> list["array[int]"]:
    """Orders of F and I with every W as late as memory allows: just before an F that needs room,
    or at the end."""
    late = []
    for row, capacity in zip(rows, memory.capacity, strict=True):
        order, held = array("q"), 0
        pending: deque[int] = deque()
        for code, change in zip(row, memory.changes(row), strict=True):
            while pending and held + change > capacity:
                order.append(pending.popleft())
                held += memory.changes(order[-1:])[0]
            order.append(code)
            held += change
            if code & KIND_MASK == Kind.I:
                pending.append(code & ~KIND_MASK | Kind.W)
        order.extend(pending)
        late.append(order)
    return late


def backfill(schedule: Schedule, costs: Costs, memory: Memory) -> list["array[int]"]:
    """The rows of a schedule of F, I and W, backfilled."""
    return Backfill(Program(schedule, costs), memory).rows()


class Backfill:
    """One run over a program: every rank's clock, what it holds, and its actions to come, those of
    one kind and stage in a queue; the W of both stages are one queue."""

    def __init__(self, program: Program, memory: Memory):
        ranks = program.schedule.ranks
        self.program = program
        self.changes, self.capacity = memory.changes(program.codes), memory.capacity
        self.reach = REACH * ranks
        self.ends = array("q", [-1]) * program.nodes
        self.clock, self.held = [0] * ranks, [0] * ranks
        self.queues: list[list[deque[int]]] = []
        self.lane_of = array("i")
        for rank, (start, row) in enumerate(
            zip(program.lane_start, program.schedule.codes, strict=False)
        ):
            queues: dict[int, deque[int]] = {}
            for node, code in enumerate(row, start):
                kind_and_stage = code & ((1 << MICROBATCH_SHIFT) - 1)
                one_of = Kind.W if code & KIND_MASK == Kind.W else kind_and_stage
                queues.setdefault(one_of, deque()).append(node)
            self.queues.append(list(queues.values()))
            self.lane_of.extend(array("i", [rank]) * len(row))

    def rows(self) -> list["array[int]"]:
        """Run it; returns every rank's codes in the order they ran."""
        program, lane_of = self.program, self.lane_of
        rows = [array("q") for _ in self.clock]
        users: dict[int, list[int]] = {}
        for node, need in enumerate(program.needs):
            if need >= 0 and lane_of[node] != lane_of[need]:
                users.setdefault(need, []).append(node)
        events = [(0, rank) for rank in range(len(rows))]
        while events:
            now, rank = heappop(events)
            if now < self.clock[rank]:
                continue
            queue, later = self.choose(rank, now)
            if queue is None:
                if later < NEVER:
                    heappush(events, (later, rank))
                continue
            node = queue.popleft()
            if not queue:
                self.queues[rank].remove(queue)
            end = now + program.duration[node]
            self.ends[node] = self.clock[rank] = end
            self.held[rank] += self.changes[node]
            rows[rank].append(program.codes[node])
            heappush(events, (end, rank))
            for user in users.get(node, ()):
                heappush(events, (end + program.lag[user], lane_of[user]))
        return rows

    def choose(self, rank: int, now: int) -> tuple["deque[int] | None", int]:
        """The queue whose first action starts now; if none, when to ask again."""
        program, changes, capacity = self.program, self.changes, self.capacity[rank]
        queues = sorted(self.queues[rank])
        if not queues:
            return None, NEVER
        head = queues[0][0]
        at = self.arrival(head)
        if self.held[rank] + changes[head] > capacity:
            at = NEVER
        if at <= now:
            return queues[0], now
        later, held, most, position = at, 0, 0, head
        for queue in queues[1:]:
            node = queue[0]
            if node - head > self.reach:
                break
            for overtaken in range(position, node):
                if self.ends[overtaken] < 0:
                    held += changes[overtaken]
                    most = max(most, held)
            position = node
            if changes[node] > 0 and self.held[rank] + changes[node] + most > capacity:
                continue
            start = max(self.arrival(node), now)
            if start + program.duration[node] <= at:
                if start == now:
                    return queue, now
                later = min(later, start)
        return None, later

    def arrival(self, node: int) -> int:
        """When an action's input is there; NEVER where that is not known yet."""
        need = self.program.needs[node]
        if need < 0:
            return 0
        end = self.ends[need]
        return NEVER if end < 0 else end + self.program.lag[node]
