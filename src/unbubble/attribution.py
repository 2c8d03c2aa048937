"""Attribution: every rank's step split into five classes that add up to its wall clock exactly.

The classes come from a ladder of what-if simulations of the same order of actions:

    rung           durations                                                       makespan
    ideal          each rank's mean of each kind, scaled to the mean work w        T1
    static         each rank's mean of each kind                                   T2
    jitter         compute of each action as it was                                T3
    communication  and the communication inside actions, transfers, collectives    T4
    measured       everything                                                      T

    T = w_r     + (T1 − w) + (T2 − w_r − T1 + w) + (T3 − T2) + (T4 − T3)     + (T − T4)
        compute   bubble     imbalance, static     its jitter  communication   overhead

All figures are fractions of a tick. A class may be negative, most often the static imbalance of the
slowest rank: it waits less than in the ideal pipeline. It is reported as it is.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from unbubble.action import JOINED, KIND_MASK, Kind, pack
from unbubble.costs import Costs, Duration, StageCosts
from unbubble.errors import InputError
from unbubble.simulate.program import MAX_TOTAL_TICKS
from unbubble.simulate.simulation import simulate
from unbubble.simulate.timeline import Timeline

_COMPUTE = (Kind.F, Kind.B, Kind.I, Kind.W, Kind.OPTIMIZER)
_COLLECTIVE = (Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD, Kind.CLIP)


class Ladder(NamedTuple):
    """The makespans of the five rungs, tail included, in ticks."""

    ideal: Fraction
    static: Fraction
    jitter: Fraction
    communication: Fraction
    measured: Fraction


class Gains(NamedTuple):
    """What the whole step would win if one cause went away, in ticks: the ladder's differences."""

    imbalance_static: Fraction
    imbalance_jitter: Fraction
    communication: Fraction
    overhead: Fraction


class RankClasses(NamedTuple):
    """One rank's step in ticks: five classes (imbalance in two parts) whose sum is `total`.

    `recompute` and `optimizer` are parts of `compute`.
    """

    rank: int
    compute: Fraction
    bubble: Fraction
    imbalance_static: Fraction
    imbalance_jitter: Fraction
    communication: Fraction
    overhead: Fraction
    total: Fraction
    recompute: Fraction
    optimizer: Fraction


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The classes of every rank, and the ladder they come from; times in ticks."""

    ranks: tuple[RankClasses, ...]
    ladder: Ladder
    unit: str = ""
    ticks_per_unit: int = 1

    @property
    def gains(self) -> Gains:
        """T2 − T1, T3 − T2, T4 − T3, T − T4."""
        t = self.ladder
        return Gains(
            t.static - t.ideal,
            t.jitter - t.static,
            t.communication - t.jitter,
            t.measured - t.communication,
        )

    def in_unit(self, ticks: Fraction) -> float:
        """Ticks as a float in the timeline's unit."""
        return float(ticks / self.ticks_per_unit)


def attribute(timeline: Timeline, costs: Costs | None = None) -> Attribution:
    """Split a simulated or measured step into the five classes.

    The timeline's `communication` and `overhead` arrays are the parts of its actions' times, its
    `transfers` the times on the wire; whatever else its ranks spend between `begin` and `finish`
    is found by the ladder. `costs` say what a timeline cannot: how transfers share their channels.
    """
    rows = [_parts(timeline, rank) for rank in range(timeline.ranks)]
    work = [sum(row.compute) for row in rows]
    mean = Fraction(sum(work), len(work))
    scale = _scale(rows, timeline)
    rung = _Rungs(timeline, costs, scale)
    ideal = rung.makespan([_scaled_means(row, sum(work), len(work), scale) for row in rows])
    static = rung.makespan([_means(row, scale) for row in rows])
    jitter = rung.makespan([array("q", (t * scale for t in row.compute)) for row in rows])
    collectives = _clip_waits(timeline, rows)
    communication = rung.makespan(
        [
            array("q", ((c + x) * scale for c, x in zip(row.compute, extra, strict=True)))
            for row, extra in zip(rows, collectives, strict=True)
        ],
        transfers=True,
    )
    total = Fraction(timeline.finish - timeline.begin)
    ladder = Ladder(ideal, static, jitter, communication, total)
    classes = tuple(
        RankClasses(
            rank=rank,
            compute=Fraction(own),
            bubble=ideal - mean,
            imbalance_static=(static - own) - (ideal - mean),
            imbalance_jitter=jitter - static,
            communication=communication - jitter,
            overhead=total - communication,
            total=total,
            recompute=Fraction(sum(timeline.recompute[rank]) if timeline.recompute else 0),
            optimizer=Fraction(sum(row.of_kind(Kind.OPTIMIZER))),
        )
        for rank, (own, row) in enumerate(zip(work, rows, strict=True))
    )
    return Attribution(
        ranks=classes, ladder=ladder, unit=timeline.unit, ticks_per_unit=timeline.ticks_per_unit
    )


class _Row(NamedTuple):
    """One rank's actions: kind (a pair counts as OVERLAP_F_B at its second code), compute ticks,
    and ticks of communication inside."""

    kinds: list[int]
    compute: list[int]
    communication: list[int]

    def of_kind(self, kind: int) -> Iterable[int]:
        return (t for k, t in zip(self.kinds, self.compute, strict=True) if k == kind)


def _parts(timeline: Timeline, rank: int) -> _Row:
    codes = timeline.schedule.codes[rank]
    zeros = array("q", bytes(8 * len(codes)))
    inside = timeline.communication[rank] if timeline.communication else zeros
    around = timeline.overhead[rank] if timeline.overhead else zeros
    kinds, compute, communication = [], [], []
    joined = False
    for code, start, end, c, o in zip(
        codes, timeline.starts[rank], timeline.ends[rank], inside, around, strict=True
    ):
        kind = code & KIND_MASK
        own, other = 0, 0
        if code & JOINED:
            kind = -1
        elif kind in _COMPUTE:
            own, other = end - start - c - o, c
        elif kind in _COLLECTIVE:
            other = end - start - o
        kinds.append(int(Kind.OVERLAP_F_B) if joined else kind)
        compute.append(own)
        communication.append(other)
        joined = bool(code & JOINED)
    return _Row(kinds, compute, communication)


def _clip_waits(timeline: Timeline, rows: Sequence[_Row]) -> list[list[int]]:
    """Each action's communication; clipping is a barrier and counts from its latest start."""
    places = [[i for i, kind in enumerate(row.kinds) if kind == Kind.CLIP] for row in rows]
    result = [list(row.communication) for row in rows]
    for group in range(max(map(len, places))):
        here = [(rank, p[group]) for rank, p in enumerate(places) if group < len(p)]
        latest = max(timeline.starts[rank][i] for rank, i in here)
        for rank, i in here:
            result[rank][i] -= latest - timeline.starts[rank][i]
    return result


def _scale(rows: Sequence[_Row], timeline: Timeline) -> int:
    """The common denominator: every mean and the mean work are whole on it where it fits.

    Beyond what the simulator can add up, means are rounded to the finest denominator that fits.
    """
    counts = [row.kinds.count(kind) for row in rows for kind in {*row.kinds} if kind >= 0]
    wanted = len(rows) * lcm(*counts)
    longest = sum(map(sum, timeline.ends)) - sum(map(sum, timeline.starts))
    longest += sum(t.end - t.start for t in timeline.transfers)
    room = (MAX_TOTAL_TICKS - 1) // (4 * max(longest, 1))
    if room < len(rows):
        raise InputError("the times are too long to add up exactly; use a coarser unit")
    return wanted if wanted <= room else room - room % len(rows)


def _means(row: _Row, scale: int) -> "array[int]":
    """Every action at its kind's mean, in scaled ticks."""
    totals = {kind: sum(row.of_kind(kind)) * scale for kind in {*row.kinds}}
    return _spread(row.kinds, totals)


def _scaled_means(row: _Row, all_work: int, ranks: int, scale: int) -> "array[int]":
    """The same, scaled so that the rank's work is the mean over ranks exactly."""
    own = sum(row.compute)
    target = all_work * scale // ranks
    totals, done, given = {}, 0, 0
    for kind in sorted({*row.kinds}):
        share = sum(row.of_kind(kind))
        if own == 0 and kind in (*_COMPUTE, Kind.OVERLAP_F_B):  # idle ranks take an even share
            share = row.kinds.count(kind)
        done += share
        totals[kind] = share
    whole, done = max(done, 1), 0
    for kind, share in totals.items():
        done += share
        totals[kind] = done * target // whole - given
        given += totals[kind]
    return _spread(row.kinds, totals)


def _spread(kinds: Sequence[int], totals: dict[int, int]) -> "array[int]":
    """Each kind's total shared out evenly over its actions, to the last tick."""
    left = {kind: kinds.count(kind) for kind in totals}
    rest = dict(totals)
    result = array("q")
    for kind in kinds:
        share = rest[kind] // left[kind]
        rest[kind] -= share
        left[kind] -= 1
        result.append(share)
    return result


class _Rungs:
    """Simulates the timeline's order with other durations, in ticks / `scale`."""

    def __init__(self, timeline: Timeline, costs: Costs | None, scale: int):
        nothing = StageCosts(
            forward=Duration(), backward_input=Duration(), backward_weight=Duration()
        )
        self.costs = Costs(stages=(nothing,) * timeline.schedule.num_stages)
        self.schedule = timeline.schedule
        self.scale = scale
        wire = _wire_times(timeline)
        self.lags = [
            array("q", (wire.get(code & ~JOINED, 0) * scale for code in codes))
            for codes in self.schedule.codes
        ]
        self.no_lags = [array("q", bytes(8 * len(codes))) for codes in self.schedule.codes]

    def makespan(self, durations: Sequence["array[int]"], *, transfers: bool = False) -> Fraction:
        lags = self.lags if transfers else self.no_lags
        found = simulate(self.schedule, self.costs, durations=durations, lags=lags)
        return Fraction(found.finish - found.begin, self.scale)


def _wire_times(timeline: Timeline) -> dict[int, int]:
    """The time on the wire of each consumer's input, by the consumer's code."""
    times = {}
    for transfer in timeline.transfers:
        send = transfer.action
        up = send.kind is Kind.SEND_F
        for kind in (Kind.F,) if up else (Kind.B, Kind.I):
            consumer = pack(kind, send.stage + (1 if up else -1), send.microbatch)
            times[consumer] = transfer.end - transfer.start
    return times
