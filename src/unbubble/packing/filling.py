"""Filling: weight gradients where a rank would wait, so that nothing urgent waits for them.

    frame    0 1 2 . . a . 3 b . . c . d        F and I, in an order that is given
    filled   0 1 2 . . a A 3 b B . c C d D      W where it fits, where memory needs it, at the end

A W that only partly fits a gap is a choice: run it and delay what comes next, or wait. Waiting is
free on a rank as long as its span stays within a *target*; delaying is harmless as long as the next
action still ends by its *deadline*, the latest end with which every rank could meet the target.
A rank that spends all of a target's idle time early has none left in the drain, where waiting helps
most. At a common *pace* it waits no longer than the rank that had to wait longest so far.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from unbubble.action import KIND_AND_STAGE, KIND_MASK, I, Kind, W, pack
from unbubble.costs import Costs
from unbubble.packing import kernel
from unbubble.packing.memory import Memory
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import Placement
from unbubble.simulate import simulate
from unbubble.simulate.program import Program

WAY, FIRST, NEXT = 40, (0, 20, 24, 28, 32, 36), ((-2, 2), (-1, 1))
"""Targets are fortieths of the way from a frame's bound to its span when nothing is delayed: first
a few, then two and one to either side of the best, since spans have about one valley there."""
MOST_NODES = 1 << 28
"""The search ends after so many simulated nodes, so that a huge schedule takes a minute."""


class Frame:
    """An order of F and I (rows of codes) with its costs and its memory limit.

    `bound`: no filling of it has a smaller span. Raises InputError where the costs do not fit.
    """

    def __init__(
        self, rows: Sequence["array[int]"], placement: Placement, costs: Costs, memory: Memory
    ):
        lanes = [row + weights_of(row) for row in rows]
        program = Program(Schedule.of_codes(lanes, placement), costs)
        starts = program.lane_start
        self.placement, self.program = placement, program
        self.weights_start = array("i", map(int.__add__, starts, map(len, rows)))
        self.changes = memory.changes(program.codes)
        self.capacity = array("q", memory.capacity)
        self.lane_of = _filled("i", program.nodes, 0)
        self.order = _filled("i", sum(map(len, rows)), 0)
        kernel.in_rounds(
            starts, self.weights_start, program.needs, self.changes, program.order().order,
            self.lane_of, _filled("i", program.nodes, 0), _filled("i", program.nodes + 2, 0),
            self.order,
        )  # fmt: skip
        self.begins, self.work, least = array("q"), array("q"), []
        ends = self._alone()
        for start, weights, stop in zip(starts, self.weights_start, starts[1:], strict=False):
            duration = program.duration[start:stop]
            begin, work = ends[start] - duration[0], sum(duration)
            self.begins.append(begin)
            self.work.append(work)
            # up to its first I nothing fills a rank's idle time; after its last I comes a W
            first = next(n for n in range(start, stop) if self.changes[n] <= 0)
            idle = ends[first] - begin - sum(duration[: first + 1 - start])
            least.append(max(work + idle, ends[weights - 1] + duration[-1] - begin))
        self.bound = max(least)

    def _alone(self) -> "array[int]":
        """The ends of F and I if every W took no time."""
        duration = self.program.duration[:]
        for weights, stop in zip(self.weights_start, self.program.lane_start[1:], strict=True):
            duration[weights:stop] = _filled("q", stop - weights, 0)
        return self.program.run(duration)

    def fill(
        self, target: int, *, strict: bool = True, pace: bool = False, urgent: bytes = b""
    ) -> "Filled":
        """Fill the frame for a target; a strict filling counts every delay as harmful.

        With `pace` the target moves out to the work and waits so far of the rank that has most;
        `urgent` marks with 1 each node that no W may delay for anything but memory.
        """
        program, ranks = self.program, self.placement.ranks
        nodes = program.nodes
        deadlines = _filled("q", nodes, -1)
        if not strict:
            lane_ends = array("q", (begin + target for begin in self.begins))
            kernel.find_deadlines(
                program.lane_start, self.weights_start, program.needs, program.lag,
                program.duration, self.order, lane_ends, deadlines,
            )  # fmt: skip
        filled, clock = _filled("i", nodes, 0), _filled("q", ranks, 0)
        kernel.fill(
            self.order, self.lane_of, program.lane_start, self.weights_start, program.needs,
            program.lag, program.duration, self.changes, self.capacity, self.work, target, pace,
            urgent or bytes(nodes), deadlines, _filled("q", nodes, 0), filled,
            _filled("i", ranks, 0), _filled("i", ranks, 0), clock, _filled("q", ranks, 0),
            _filled("q", ranks, 0),
        )  # fmt: skip
        return Filled(max(map(int.__sub__, clock, self.begins)), filled, self)

    def patient(self) -> "Filled":
        """The filling in which no action waits for a W but for memory."""
        return self.fill(kernel.NEVER)

    def fillings(self) -> Iterator["Filled"]:
        """A few ways to fill it, for the shortest to be chosen from."""
        patient, eager = self.patient(), self.fill(self.bound)
        yield from (patient, eager, self.fill(min(patient.span, eager.span)))
        yield from self.scan(patient.span)
        for urgent in self.urgencies():
            yield self.fill(max(self.work), pace=True, urgent=urgent)
            yield from self.scan(patient.span, pace=True, urgent=urgent)

    def scan(self, longest: int, *, pace: bool = False, urgent: bytes = b"") -> Iterator["Filled"]:
        """Fillings for targets from the bound to the longest."""
        spans: dict[int, int] = {}
        for steps in (FIRST, *NEXT):
            best = min(spans, key=spans.__getitem__, default=0)
            for step in steps:
                target = self.bound + (longest - self.bound) * (best + step) // WAY
                filled = self.fill(target, strict=False, pace=pace, urgent=urgent)
                spans[best + step] = filled.span
                yield filled

    def urgencies(self) -> Iterator[bytes]:
        """What may be urgent: nothing, F, the I of a rank's stages after its first, or both. Those
        I are of microbatches whose way back over all ranks is still to come."""
        stages = set(range(self.placement.num_stages))
        firsts = {self.placement.stages_of(rank)[0] for rank in range(self.placement.ranks)}
        forwards = {pack(Kind.F, stage) for stage in stages}
        inputs = {pack(Kind.I, stage) for stage in stages - firsts}
        kinds = [*map(KIND_AND_STAGE.__and__, self.program.codes)]
        yield b""
        for urgent in (forwards, inputs, forwards | inputs) if inputs else (forwards,):
            yield bytes(map(urgent.__contains__, kinds))


@dataclass(frozen=True)
class Filled:
    """One way to fill a frame: its span in ticks, and each lane's nodes in the order they run."""

    span: int
    nodes: "array[int]"
    frame: Frame

    def schedule(self) -> Schedule:
        codes, starts = self.frame.program.codes, self.frame.program.lane_start
        rows = [
            array("q", map(codes.__getitem__, self.nodes[start:stop]))
            for start, stop in pairwise(starts)
        ]
        return Schedule.of_codes(rows, self.frame.placement)


def shortest(frames: Iterable[Frame]) -> Filled:
    """The filling of least span; frames that can do no better are given up at once."""
    best: Filled | None = None
    nodes = 0
    for frame in frames:
        for filled in frame.fillings():
            nodes += frame.program.nodes
            if best is None or filled.span < best.span:
                best = filled
            if best.span <= frame.bound or nodes > MOST_NODES:
                break
        if nodes > MOST_NODES:
            break
    assert best is not None
    return best


def best(schedules: Iterable[Schedule], costs: Costs) -> Schedule:
    """The schedule of least span, of those the first of least makespan."""

    def length(schedule: Schedule) -> tuple[int, int]:
        timeline = simulate(schedule, costs)
        return timeline.span, timeline.makespan

    return min(schedules, key=length)


def without_weights(rows: Iterable["array[int]"]) -> list["array[int]"]:
    """The F and I of every row."""
    return [array("q", [c for c in row if c & KIND_MASK != W]) for row in rows]


def weights_of(row: "array[int]") -> "array[int]":
    """The W of every I of an order, in the same order."""
    return array("q", [c - I + W for c in row if c & KIND_MASK == I])


def _filled(typecode: str, length: int, value: int) -> "array[int]":
    return array(typecode, [value]) * length
