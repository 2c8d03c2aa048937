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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from unbubble.action import JOINED, KIND_MASK, Kind, unpack
from unbubble.costs import Costs, Tail
from unbubble.errors import InputError
from unbubble.schedule.order import picked, without_comms
from unbubble.simulate.program import Program
from unbubble.simulate.replay import timeless, wire_times
from unbubble.simulate.timeline import Timeline
from unbubble.simulate.times import MAX_TOTAL_TICKS
from unbubble.steady import Window

_COMPUTE = (Kind.F, Kind.B, Kind.I, Kind.W, Kind.OPTIMIZER)
_WORK = (*_COMPUTE, Kind.OVERLAP_F_B)
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

    `recompute` (None where a measurement does not tell it) and `optimizer` are parts of `compute`.
    """

    rank: int
    compute: Fraction
    bubble: Fraction
    imbalance_static: Fraction
    imbalance_jitter: Fraction
    communication: Fraction
    overhead: Fraction
    total: Fraction
    recompute: Fraction | None
    optimizer: Fraction


CLASSES = RankClasses._fields[1:7]
"""The names of the classes, in the order in which they are shown."""


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The classes of every rank, and the ladder they come from; times in ticks.

    `microbatches`: how many of them the total is the time of.
    """

    ranks: tuple[RankClasses, ...]
    ladder: Ladder
    microbatches: int
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

    def row_in_unit(self, row: RankClasses) -> dict[str, float | None]:
        """A rank's classes, their sum, recompute and optimizer by name, in the timeline's unit."""
        parts = {name: getattr(row, name) for name in RankClasses._fields[1:]}
        return {k: None if ticks is None else self.in_unit(ticks) for k, ticks in parts.items()}


def attribute(timeline: Timeline, costs: Costs | None = None) -> Attribution:
    """Split a simulated or measured step into the five classes.

    The timeline's `communication` and `overhead` arrays are the parts of its actions' times, its
    `transfers` the times on the wire; whatever else its ranks spend between `begin` and `finish`
    is found by the ladder. `costs` say what a timeline cannot: whether transfers hold their ranks
    and how they share channels. Sends and receives themselves are the runtime's overhead.

    A pipeline that never flushes has no step: its classes are those of the steady state, between
    the ends of two backwards on the first stage, over `microbatches`. Raises InputError where such
    a timeline is too short to have one.
    """
    return attribute_together([timeline], costs)[0]


def attribute_together(
    timelines: Sequence[Timeline], costs: Costs | None = None
) -> tuple[Attribution, ...]:
    """Split one step of pipelines that wait for each other at its end, a job's replicas.

    All of them have one ladder: an ideal rank's work is the mean over the ranks of all, and every
    rung is as long as it takes the slowest of them, so that waiting for it is imbalance.
    """
    windows = [Window(timeline) for timeline in timelines]
    rows = [
        [_parts(timeline, rank, window) for rank in range(timeline.ranks)]
        for timeline, window in zip(timelines, windows, strict=True)
    ]
    for timeline, own in zip(timelines, rows, strict=True):
        _clip_from_latest_start(timeline, own)
    ranks = [row for own in rows for row in own]
    mean = Fraction(sum(row.work for row in ranks), len(ranks))
    rungs = [
        _ladder(timeline, costs, window, own, mean)
        for timeline, window, own in zip(timelines, windows, rows, strict=True)
    ]
    ladder = Ladder(*map(max, zip(*rungs, strict=True)))
    return tuple(
        Attribution(
            ranks=tuple(
                _classes(timeline, rank, row, ladder, mean) for rank, row in enumerate(own)
            ),
            ladder=ladder,
            microbatches=window.microbatches,
            unit=timeline.unit,
            ticks_per_unit=timeline.ticks_per_unit,
        )
        for timeline, window, own in zip(timelines, windows, rows, strict=True)
    )


def _classes(
    timeline: Timeline, rank: int, row: "_Row", ladder: Ladder, mean: Fraction
) -> RankClasses:
    """A rank's classes; `mean` is the work of an ideal rank."""
    return RankClasses(
        rank=rank,
        compute=Fraction(row.work),
        bubble=ladder.ideal - mean,
        imbalance_static=(ladder.static - row.work) - (ladder.ideal - mean),
        imbalance_jitter=ladder.jitter - ladder.static,
        communication=ladder.communication - ladder.jitter,
        overhead=ladder.measured - ladder.communication,
        total=ladder.measured,
        recompute=_recompute(timeline, rank, row.inside),
        optimizer=Fraction(row.of_kind(Kind.OPTIMIZER)),
    )


def _recompute(timeline: Timeline, rank: int, inside: slice) -> Fraction | None:
    """A rank's; a simulation without any has none, a measurement does not tell."""
    if timeline.recompute is None:
        return None if timeline.measured else Fraction(0)
    return Fraction(sum(timeline.recompute[rank][inside]))


def _ladder(
    timeline: Timeline,
    costs: Costs | None,
    window: Window,
    rows: Sequence["_Row"],
    mean: Fraction,
) -> Ladder:
    """The rungs of one pipeline; `mean` is the work of an ideal rank."""
    scale = _scale(rows, timeline, mean)
    schedule = timeline.schedule
    whole = Program(schedule, _timeless(timeline, costs))
    bare = whole
    kept: list[Sequence[int]] = [range(len(codes)) for codes in schedule.codes]
    if whole.comms:  # the first rungs know of no transfer
        kept = [*without_comms(schedule.codes)]
        bare = Program(replace(schedule, codes=picked(schedule.codes, kept)), whole.costs)

    def rung(durations: Sequence["array[int]"]) -> Fraction:
        return Fraction(window.length(bare, bare.times(picked(durations, kept)), kept), scale)

    ideal = rung([_means(row, scale, int(mean * scale)) for row in rows])
    static = rung([_means(row, scale) for row in rows])
    jitter = rung([array("q", (t * scale for t in row.compute)) for row in rows])
    everything = [
        array("q", ((c + x) * scale for c, x in zip(row.compute, row.communication, strict=True)))
        for row in rows
    ]
    wire = wire_times(timeline)
    lags = [
        array("q", (wire.get(code & ~JOINED, 0) * scale for code in codes))
        for codes in schedule.codes
    ]
    communication = Fraction(window.length(whole, whole.times(everything, lags)), scale)
    return Ladder(ideal, static, jitter, communication, Fraction(window.measured))


def _timeless(timeline: Timeline, costs: Costs | None) -> Costs:
    """Costs of no time at all, which say how transfers and reductions run."""
    nothing = timeless(timeline.schedule)
    if costs is not None:
        nothing = replace(nothing, overlap=costs.overlap, channel=costs.channel)
    beside = (costs is not None and costs.tail.overlap_reduce) or _reduces_beside(timeline)
    return replace(nothing, tail=Tail(overlap_reduce=beside))


def _reduces_beside(timeline: Timeline) -> bool:
    """Whether any gradient reduction still runs when its rank's next action starts."""
    rows = zip(timeline.schedule.codes, timeline.starts, timeline.ends, strict=True)
    return any(
        codes[i] & KIND_MASK == Kind.REDUCE_GRAD and ends[i] > starts[i + 1]
        for codes, starts, ends in rows
        for i in range(len(codes) - 1)
    )


class _Row(NamedTuple):
    """One rank's actions: kind (a pair counts as OVERLAP_F_B at its second code), compute ticks,
    and ticks of communication inside; and the part that is looked at."""

    kinds: list[int]
    compute: list[int]
    communication: list[int]
    inside: slice

    @property
    def work(self) -> int:
        """Compute ticks inside the window."""
        return sum(self.compute[self.inside])

    def of_kind(self, kind: int) -> int:
        """Compute ticks of a kind inside the window."""
        rows = zip(self.kinds[self.inside], self.compute[self.inside], strict=True)
        return sum(time for k, time in rows if k == kind)


def _parts(timeline: Timeline, rank: int, window: Window) -> _Row:
    codes = timeline.schedule.codes[rank]
    zeros = array("q", [0]) * len(codes)
    inside = timeline.communication[rank] if timeline.communication else zeros
    around = timeline.overhead[rank] if timeline.overhead else zeros
    kinds, compute, communication = [], [], []
    joined = False
    for code, start, end, c, o in zip(
        codes, timeline.starts[rank], timeline.ends[rank], inside, around, strict=True
    ):
        kind = code & KIND_MASK
        own, other = 0, 0
        if end - start < c + o or min(c, o) < 0:
            raise InputError(
                f"{unpack(code)} on rank {rank} takes {end - start} ticks, of which {c} are "
                f"communication and {o} overhead; parts are at least 0 and no more than the whole"
            )
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
    return _Row(kinds, compute, communication, window.inside[rank])


def _clip_from_latest_start(timeline: Timeline, rows: Sequence[_Row]) -> None:
    """Clipping is a barrier: waiting for the latest rank is no communication."""
    places = [[i for i, kind in enumerate(row.kinds) if kind == Kind.CLIP] for row in rows]
    for group in range(max(map(len, places))):
        here = [(rank, p[group]) for rank, p in enumerate(places) if group < len(p)]
        latest = max(timeline.starts[rank][i] for rank, i in here)
        for rank, i in here:
            waited = latest - timeline.starts[rank][i]
            rows[rank].communication[i] = max(rows[rank].communication[i] - waited, 0)


def _scale(rows: Sequence[_Row], timeline: Timeline, work: Fraction) -> int:
    """The common denominator on which every duration of every rung is a whole number.

    Where that is beyond what the simulator can add up, the ideal rung's durations, else all means,
    are rounded to the finest denominator that fits, each rank's work staying exact.
    """
    means, scaled = 1, 1
    for row in rows:
        own = row.work
        kinds = [kind for kind in row.kinds[row.inside] if kind in _WORK]
        for kind in {*kinds}:
            mean = Fraction(row.of_kind(kind), kinds.count(kind))
            share = mean / own if own else Fraction(1, len(kinds))
            means = lcm(means, mean.denominator)
            scaled = lcm(scaled, (share * work).denominator)
    longest = sum(map(sum, timeline.ends)) - sum(map(sum, timeline.starts))
    longest = max(longest, int(work * len(rows)))
    longest += sum(t.end - t.start for t in timeline.transfers)
    room = (MAX_TOTAL_TICKS - 1) // (4 * max(longest, 1))
    whole = work.denominator
    if room < whole:
        raise InputError("the times are too long to add up exactly; use a coarser unit")
    for step in (lcm(whole, means, scaled), lcm(whole, means), whole):
        if step <= room:
            break
    exact = step % scaled == 0
    return step if exact else room - room % step


def _means(row: _Row, scale: int, target: int | None = None) -> "array[int]":
    """Every action at its kind's mean, in scaled ticks.

    With a `target` the means are scaled so that the rank's work inside the window is just that.
    """
    kinds = row.kinds[row.inside]
    counts = {kind: kinds.count(kind) for kind in sorted({*row.kinds})}
    totals = {kind: row.of_kind(kind) for kind in counts}
    if target is None:
        totals = {kind: total * scale for kind, total in totals.items()}
    else:
        whole = sum(totals.values())
        if whole == 0:  # a rank that computes nothing gets an even share of the ideal
            totals = {kind: n if kind in _WORK else 0 for kind, n in counts.items()}
            whole = max(sum(totals.values()), 1)
        done = given = 0
        for kind, total in totals.items():
            done += total
            totals[kind] = done * target // whole - given
            given += totals[kind]
    # inside the window each kind's total is shared out to the last tick
    left, rest = dict(counts), dict(totals)
    times = array("q")
    for i, kind in enumerate(row.kinds):
        if row.inside.start <= i < row.inside.stop:
            share = rest[kind] // left[kind]
            rest[kind] -= share
            left[kind] -= 1
        else:
            share = totals[kind] // max(counts[kind], 1)
        times.append(share)
    return times
