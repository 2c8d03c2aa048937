"""Filling: weight gradients where a rank would wait, so that nothing urgent waits for them.

    frame    0 1 2 . . a . 3 b . . c . d        F and I, in an order that is given
    filled   0 1 2 . . a A 3 b B . c C d D      W where it fits, where memory needs it, at the end

A W that only partly fits a gap is a choice: run it and delay what comes next, or wait. Waiting is
free on a rank as long as its span stays within a *target*; delaying is harmless as long as the next
action still ends by its *deadline*, the latest end with which every rank could meet the target.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from unbubble.action import KIND_MASK, Kind
from unbubble.costs import Costs
from unbubble.packing.memory import Memory
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import Placement
from unbubble.simulate import kernel
from unbubble.simulate.program import Program

NEVER = 1 << 62


@dataclass(frozen=True)
class Filled:
    """One way to fill a frame: its span in ticks, and its nodes in the order they run."""

    span: int
    nodes: "array[int]"
    frame: "Frame"

    def schedule(self, name: str) -> Schedule:
        codes, starts = self.frame.codes, self.frame.program.lane_start
        rows = [
            array("q", [codes[node] for node in self.nodes[start:stop]])
            for start, stop in zip(starts, starts[1:], strict=False)
        ]
        return Schedule.of_codes(rows, self.frame.placement, name=name)


class Frame:
    """An order of F and I (rows of codes) with its costs and its memory limit.

    `bound`: no filling of it has a smaller span. Raises InputError where the costs do not fit.
    """

    def __init__(
        self, rows: Sequence["array[int]"], placement: Placement, costs: Costs, memory: Memory
    ):
        self.placement = placement
        lanes = [row + weights_of(row) for row in rows]
        self.codes = array("q")
        for lane in lanes:
            self.codes.extend(lane)
        self.program = program = Program(Schedule.of_codes(lanes, placement), costs)
        self.changes, self.capacity = memory.changes(self.codes), memory.capacity
        self.lanes = [
            (start, start + len(row), stop)
            for start, row, stop in zip(
                program.lane_start, rows, program.lane_start[1:], strict=False
            )
        ]
        alone = program.duration[:]
        for _, weights, stop in self.lanes:
            alone[weights:stop] = array("q", bytes(8 * (stop - weights)))
        ends = program.run(alone)
        self.begins = [ends[start] - alone[start] for start, _, _ in self.lanes]
        self.work = [sum(program.duration[start:stop]) for start, _, stop in self.lanes]
        self.bound = max(
            max(
                ends[weights - 1] + program.duration[stop - 1] - begin,
                work + self._idle_before_weights(start, weights, ends),
            )
            for (start, weights, stop), begin, work in zip(
                self.lanes, self.begins, self.work, strict=True
            )
        )
        self.backwards = _topological(program)[::-1]

    def _idle_before_weights(self, start: int, weights: int, ends: "array[int]") -> int:
        """A rank's idle time up to its first I: nothing can fill it."""
        duration = self.program.duration
        node = next(n for n in range(start, weights) if self.codes[n] & KIND_MASK == Kind.I)
        return ends[node] - ends[start] - sum(duration[start + 1 : node + 1])

    def deadlines(self, target: int) -> "list[int]":
        """The latest end of every F and I that lets each rank's span stay within the target, were
        only the last W to follow the last I."""
        needs, lag, duration = self.program.needs, self.program.lag, self.program.duration
        late = [NEVER] * self.program.nodes
        first = set()
        for (start, weights, stop), begin in zip(self.lanes, self.begins, strict=True):
            late[weights - 1] = begin + target - duration[stop - 1]
            first.add(start)
        for node in self.backwards:
            if late[node] == NEVER:
                continue
            start = late[node] - duration[node]
            if node not in first and start < late[node - 1]:
                late[node - 1] = start
            if (need := needs[node]) >= 0 and start - lag[node] < late[need]:
                late[need] = start - lag[node]
        return late

    def fill(self, target: int, deadlines: "list[int] | None" = None) -> Filled:
        """Fill the frame; without deadlines every delay counts as harmful."""
        program = self.program
        needs, lag, duration, changes = program.needs, program.lag, program.duration, self.changes
        ends = [-1] * program.nodes
        order = array("i", bytes(4 * program.nodes))
        at = [start for start, _, _ in self.lanes]
        weight = [weights for _, weights, _ in self.lanes]
        ready_weights, clock, held, waited = ([0] * len(self.lanes) for _ in range(4))
        waiting: dict[int, list[int]] = {}
        stack = list(range(len(self.lanes)))
        while stack:
            rank = stack.pop()
            start, weights, _ = self.lanes[rank]
            patience, capacity = target - self.work[rank], self.capacity[rank]
            w, now, available = weight[rank], clock[rank], weights + ready_weights[rank]
            node = at[rank] - (w - weights)
            while node < weights:
                ready = 0
                if (need := needs[node]) >= 0:
                    if ends[need] < 0:
                        waiting.setdefault(need, []).append(rank)
                        break
                    ready = ends[need] + lag[node]
                while w < available:
                    room = held[rank] + changes[node] <= capacity
                    after = now + duration[w]
                    if room and (
                        now >= ready
                        or (
                            after > ready
                            and waited[rank] + ready - now <= patience
                            and (deadlines is None or after + duration[node] > deadlines[node])
                        )
                    ):
                        break
                    now = ends[w] = after
                    held[rank] += changes[w]
                    order[at[rank]] = w
                    at[rank] += 1
                    w += 1
                if ready > now:
                    if node > start:
                        waited[rank] += ready - now
                    now = ready
                now = ends[node] = now + duration[node]
                held[rank] += changes[node]
                order[at[rank]] = node
                at[rank] += 1
                available += changes[node] <= 0
                if node in waiting:
                    stack += waiting.pop(node)
                node += 1
            weight[rank], clock[rank], ready_weights[rank] = w, now, available - weights
        span = 0
        for rank, (_, weights, stop) in enumerate(self.lanes):
            for w in range(weight[rank], stop):
                order[at[rank]] = w
                at[rank] += 1
                clock[rank] += duration[w]
            span = max(span, clock[rank] - self.begins[rank])
        return Filled(span, order, self)

    def fillings(self) -> Iterator[Filled]:
        """A few ways to fill it, for the shortest to be chosen from: without deadlines, then with
        those of targets on the way from the bound to the span of never delaying anything, first
        a few even ones, then nearer to the best of them."""
        patient = self.fill(NEVER)
        eager = self.fill(self.bound)
        yield from (patient, eager, self.fill(min(patient.span, eager.span)))
        spans: dict[int, int] = {}
        for steps in (FIRST, (-2, 2), (-1, 1)):
            best = min(spans, key=spans.__getitem__, default=0)
            for step in steps:
                target = self.bound + (patient.span - self.bound) * (best + step) // WAY
                filled = self.fill(target, self.deadlines(target))
                spans[best + step] = filled.span
                yield filled


FIRST = (0, 20, 24, 28, 32, 36)
WAY = 40


def shortest(frames: Iterable[Frame]) -> Filled:
    """The filling of least span; of frames that can do no better few or none are tried."""
    best: Filled | None = None
    for frame in frames:
        for filled in frame.fillings():
            if best is None or filled.span < best.span:
                best = filled
            if best.span <= frame.bound:
                break
    assert best is not None
    return best


def weights_of(row: "array[int]") -> "array[int]":
    """The W of every I of an order, in the same order."""
    return array("q", [c & ~KIND_MASK | Kind.W for c in row if c & KIND_MASK == Kind.I])


def _topological(program: Program) -> "array[int]":
    """The nodes, each after what it needs."""
    lanes, nodes = len(program.lane_start) - 1, program.nodes
    order, waiter = array("i", bytes(4 * nodes)), array("i", [-1]) * nodes
    position, stack, behind = (array("i", bytes(4 * lanes)) for _ in range(3))
    kernel.rank_nodes(
        program.lane_start, program.needs, order, position, stack, behind, waiter, bytearray(nodes)
    )
    return order
