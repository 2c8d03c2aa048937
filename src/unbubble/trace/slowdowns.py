"""Slowdowns: what each cause adds to a job's step, by simulating many steps without it.

After "Understanding Stragglers in Large Model Training Using What-if Analysis" (ByteDance, 2025,
arXiv 2505.05713): the *smooth* job gives every operation the mean duration of its type over all
ranks and steps (communication the median, waiting taken out), and has no gaps between operations.
The slowdown of a stage, a replica or a type of operation is the smooth job with only that one's
durations as measured, over the smooth job. Pipelines are coupled by the collectives that they
share. Each pipeline's part is the one simulator's.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import NamedTuple

from unbubble.action import JOINED, Kind, unpack
from unbubble.costs import TIME_OF
from unbubble.errors import InputError
from unbubble.simulate import Timeline
from unbubble.simulate.program import Program
from unbubble.simulate.replay import timeless, wire_times
from unbubble.trace.assembly import Pipeline
from unbubble.trace.costs import TAIL
from unbubble.trace.observed import NS, Seen


class Operation(NamedTuple):
    """One duration that can be replaced: an action's, a transfer's, a collective's. `place` is the
    position in its rank's row, `stage` the lowest of its rank."""

    pipeline: int
    rank: int
    stage: int
    name: str
    place: int
    group: str


Durations = dict[Operation, int]


@dataclass(frozen=True, kw_only=True)
class Slowdowns:
    """Step times in seconds, and slowdowns against the smooth job (1: none)."""

    steps: tuple[int, ...]
    measured_s: tuple[float, ...]
    without_gaps_s: tuple[float, ...]
    smooth_s: float
    slowdown: float
    by_stage: dict[int, float]
    by_replica: dict[int, float]
    by_operation: dict[str, float]
    by_rank: dict[int, float]
    """The least of its stage's and its replica's, by the job's rank."""
    last_stage_share: float
    """How much of the slowdown goes away when the last stage's durations become smooth."""
    worst_rank_share: float
    """The same for the rank of the largest slowdown."""


def slowdowns(steps: Sequence[tuple[int, Sequence[Pipeline]]]) -> Slowdowns | None:
    """The analysis of all steps of a job; None where some step has no timeline or no length."""
    jobs = []
    for _, pipelines in steps:
        timelines = [p.timeline for p in pipelines if p.timeline is not None]
        if len(timelines) != len(pipelines) or not timelines:
            return None
        jobs.append(_Job(pipelines, timelines))
    measured = [job.durations for job in jobs]
    smooth = _smooth(measured)

    def mean(keep: Callable[[Operation], bool]) -> Fraction:
        """Mean step time with the measured durations of some operations, the others smooth."""
        total = 0
        for job, own in zip(jobs, measured, strict=True):
            total += job.time({op: own[op] if keep(op) else smooth[op.name] for op in own})
        return Fraction(total, len(jobs))

    actual = mean(lambda op: True)
    ideal = mean(lambda op: False)
    if ideal <= 0:
        return None
    first = jobs[0]
    stages = sorted({op.stage for op in measured[0]})
    replicas = range(len(first.pipelines))
    by_stage = {s: float(mean(lambda op, s=s: op.stage == s) / ideal) for s in stages}  # type: ignore[misc]
    by_replica = {r: float(mean(lambda op, r=r: op.pipeline == r) / ideal) for r in replicas}  # type: ignore[misc]
    by_operation = {
        name: float(mean(lambda op, n=name: op.name == n) / ideal)  # type: ignore[misc]
        for name in sorted(smooth)
    }
    places = {
        pipeline.ranks[rank]: (r, rank, first.stages[r][rank])
        for r, pipeline in enumerate(first.pipelines)
        for rank in range(len(pipeline.ranks))
    }
    by_rank = {job: min(by_replica[r], by_stage[s]) for job, (r, _, s) in places.items()}
    worst = places[max(by_rank, key=lambda job: (by_rank[job], -job))]
    excess = actual - ideal

    def share(of: Callable[[Operation], bool]) -> float:
        return float((actual - mean(lambda op: not of(op))) / excess) if excess > 0 else 0.0

    return Slowdowns(
        steps=tuple(number for number, _ in steps),
        measured_s=tuple(job.measured / NS for job in jobs),
        without_gaps_s=tuple(j.time(own) / NS for j, own in zip(jobs, measured, strict=True)),
        smooth_s=float(ideal / NS),
        slowdown=float(actual / ideal),
        by_stage=by_stage,
        by_replica=by_replica,
        by_operation=by_operation,
        by_rank=by_rank,
        last_stage_share=share(lambda op: op.stage == stages[-1]),
        worst_rank_share=share(lambda op: (op.pipeline, op.rank) == worst[:2]),
    )


def _smooth(measured: Sequence[Durations]) -> dict[str, int]:
    """The duration of each type: the mean of computations, the median of communication."""
    found: dict[str, list[int]] = defaultdict(list)
    for own in measured:
        for op, ticks in own.items():
            found[op.name].append(ticks)
    works = {*TIME_OF.values(), "optimizer"}
    return {
        name: round(sum(ticks) / len(ticks) if name in works else median(ticks))
        for name, ticks in found.items()
    }


class _Job:
    """One step of all pipelines, ready to be simulated with other durations."""

    def __init__(self, pipelines: Sequence[Pipeline], timelines: Sequence[Timeline]):
        self.pipelines = pipelines
        self.timelines = timelines
        self.measured = max(t.finish for t in timelines) - min(t.begin for t in timelines)
        self.stages = [
            [min(t.schedule.placement.stages_of(rank)) for rank in range(t.ranks)]
            for t in timelines
        ]
        self.programs = [Program(t.schedule, timeless(t.schedule)) for t in timelines]
        self.places: list[list[list[tuple[int, Operation]]]] = []
        self.wires: list[list[list[tuple[int, Operation]]]] = []
        self.tails: list[list[list[Operation]]] = []
        self.durations: Durations = {}
        for number, timeline in enumerate(timelines):
            self._add(number, timeline, pipelines[number])

    def _add(self, number: int, timeline: Timeline, pipeline: Pipeline) -> None:
        wire = wire_times(timeline)
        self.places.append([])
        self.wires.append([])
        self.tails.append([])
        for rank, codes in enumerate(timeline.schedule.codes):
            one = pipeline.observed[rank]
            stage = self.stages[number][rank]
            named: list[Seen | None] = [
                *one.head,
                *([None] * (len(codes) - len(one.tail) - len(one.head))),
                *one.tail,
            ]
            places, wires, tail = [], [], []
            for place, (code, seen) in enumerate(zip(codes, named, strict=True)):
                kind = unpack(code & ~JOINED).kind
                ticks = timeline.ends[rank][place] - timeline.starts[rank][place]
                if code & ~JOINED in wire:
                    name = "forward_transfer" if kind is Kind.F else "backward_transfer"
                    op = Operation(number, rank, stage, name, place, "")
                    wires.append((place, op))
                    self.durations[op] = wire[code & ~JOINED]
                if code & JOINED:
                    continue
                if seen is None:
                    joined = place > 0 and codes[place - 1] & JOINED
                    name = TIME_OF[Kind.OVERLAP_F_B if joined else kind]
                else:
                    name = seen.name or kind.name.lower()
                op = Operation(number, rank, stage, name, place, seen.group if seen else "")
                self.durations[op] = ticks
                (tail.append(op) if kind in TAIL else places.append((place, op)))
            self.places[number].append(places)
            self.wires[number].append(wires)
            self.tails[number].append(tail)

    def time(self, durations: Durations) -> int:
        """The step's makespan in ns: each pipeline's simulation, then the tail's collectives."""
        clocks: dict[tuple[int, int], int] = {}
        for number, (timeline, program) in enumerate(
            zip(self.timelines, self.programs, strict=True)
        ):
            lengths, lags = [], []
            for rank, codes in enumerate(timeline.schedule.codes):
                length, lag = array("q", bytes(8 * len(codes))), array("q", bytes(8 * len(codes)))
                for place, op in self.places[number][rank]:
                    length[place] = durations[op]
                for place, op in self.wires[number][rank]:
                    lag[place] = durations[op]
                lengths.append(length)
                lags.append(lag)
            ends = program.run(*program.times(lengths, lags))
            for rank, stop in enumerate(program.rank_start[1:]):
                clocks[number, rank] = ends[stop - 1]
        return self._tail(clocks, durations)

    def _tail(self, clocks: dict[tuple[int, int], int], durations: Durations) -> int:
        """Runs every rank's tail; a collective starts when the last of its group is there."""
        waiting: dict[str, list[Operation]] = defaultdict(list)
        members: dict[str, int] = defaultdict(int)
        rows = {
            (n, r): list(tail) for n, ranks in enumerate(self.tails) for r, tail in enumerate(ranks)
        }
        for tail in rows.values():
            for op in tail:
                members[op.group] += 1
        ready = list(rows)
        at = dict.fromkeys(rows, 0)
        while ready:
            rank = ready.pop()
            if at[rank] == len(rows[rank]):
                continue
            op = rows[rank][at[rank]]
            group = [op]
            if op.group:
                waiting[op.group].append(op)
                if len(waiting[op.group]) < members[op.group]:
                    continue
                group = waiting[op.group]
            start = max(clocks[one.pipeline, one.rank] for one in group)
            for one in group:
                key = one.pipeline, one.rank
                clocks[key] = start + durations[one]
                at[key] += 1
                ready.append(key)
        if stuck := [rank for rank in rows if at[rank] < len(rows[rank])]:
            op = rows[stuck[0]][at[stuck[0]]]
            raise InputError(f"{op.name} of {op.group} waits for a member that never comes")
        return max(clocks.values())
