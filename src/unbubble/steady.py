"""Steady: how long the step of a pipeline takes that never flushes.

Its fill and drain happen once in a training run and belong to no step, so a step of m microbatches
is m times the period of its steady state: the time from one backward's end on the first stage to
the next one's.
"""

from array import array
from bisect import bisect
from collections.abc import Sequence
from fractions import Fraction

from unbubble.action import KIND_MASK, MICROBATCH_SHIFT, STAGE_MASK, STAGE_SHIFT, Kind
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import families
from unbubble.schedule import Schedule
from unbubble.simulate import Timeline, simulate
from unbubble.simulate.program import Program
from unbubble.simulate.simulation import arranged


def step_time(timeline: Timeline, costs: Costs) -> Fraction:
    """Ticks of one step: with a flush from the first start to the end of the tail, without one
    those of the steady state.

    Raises InputError where a schedule of its own making is too short to have a steady state (that
    of a family is simulated for longer).
    """
    if timeline.schedule.flush:
        return Fraction(timeline.length)
    lasting = long_enough(timeline.schedule, costs)
    if lasting is not timeline.schedule:
        return timeline.schedule.microbatches * period(simulate(lasting, costs))
    return timeline.schedule.microbatches * period(timeline)


def makespan(timeline: Timeline, costs: Costs) -> Fraction:
    """Ticks from the first start to the last end of a step, the tail not included; without a flush
    `step_time`."""
    if timeline.schedule.flush:
        return Fraction(timeline.makespan)
    return step_time(timeline, costs)


def bubble_fraction(timeline: Timeline, costs: Costs) -> Fraction:
    """Idle / (ranks × makespan)."""
    whole = timeline.ranks * makespan(timeline, costs)
    return 1 - sum(timeline.work) / whole if whole else Fraction(0)


def period(timeline: Timeline) -> Fraction:
    """Ticks that a microbatch takes in the steady state of a pipeline without a flush.

    In it the same pattern comes again every k microbatches, k not above those in flight; where no
    pattern is found, because times vary, the mean counts.
    """
    schedule = timeline.schedule
    home = schedule.placement.rank_of[0]
    done = [
        end
        for code, end in zip(schedule.codes[home], timeline.ends[home], strict=True)
        if code & KIND_MASK in (Kind.B, Kind.W) and not code >> STAGE_SHIFT & STAGE_MASK
    ]
    first, last = middle(schedule.ranks, len(done))
    done = done[first : last + 1]
    for k in range(1, len(done) // 2):
        gaps = {later - end for end, later in zip(done, done[k:], strict=False)}
        if len(gaps) == 1:
            return Fraction(gaps.pop(), k)
    return Fraction(done[-1] - done[0], len(done) - 1)


def middle(ranks: int, microbatches: int) -> tuple[int, int]:
    """The first and the last microbatch of the steady state, away from the fill and the drain.

    Raises InputError where the pipeline never reaches it.
    """
    first, last = max(ranks, microbatches // 3), microbatches - 1 - ranks
    if last <= first:
        raise InputError(
            f"{microbatches} microbatches on {ranks} ranks never reach a steady state; a pipeline "
            f"without a flush needs at least {2 * ranks + 2}"
        )
    return first, last


class Window:
    """What part of a timeline is looked at: all of it, or a steady state of its middle."""

    def __init__(self, timeline: Timeline):
        schedule = timeline.schedule
        self.flush = schedule.flush
        self.home = schedule.placement.rank_of[0]
        self.microbatches = schedule.microbatches
        self.measured = timeline.length
        self.inside = [slice(0, len(codes)) for codes in schedule.codes]
        if schedule.flush:
            return
        first, last = middle(schedule.ranks, schedule.microbatches)
        self.microbatches = last - first
        for rank, codes in enumerate(schedule.codes):
            done = {code >> MICROBATCH_SHIFT: i for i, code in enumerate(codes) if _ends(code)}
            if not {first + 1, last + 1} <= done.keys():
                raise InputError(f"rank {rank} runs no backward of microbatch {first} or {last}")
            self.inside[rank] = slice(done[first + 1] + 1, done[last + 1] + 1)
        here, ends = self.inside[self.home], timeline.ends[self.home]
        self.measured = ends[here.stop - 1] - ends[here.start - 1]

    def length(
        self,
        program: Program,
        times: tuple["array[int]", "array[int]"],
        kept: Sequence[Sequence[int]] | None = None,
    ) -> int:
        """How long the same part takes with other times; `kept`: the codes that the program has."""
        ends = program.run(*times)
        if self.flush:
            return max(ends[stop - 1] for stop in program.lane_start[1:] if stop)
        here, first = self.inside[self.home], program.rank_start[self.home]
        bounds = here.start - 1, here.stop - 1
        if kept is not None:
            bounds = bisect(kept[self.home], bounds[0]) - 1, bisect(kept[self.home], bounds[1]) - 1
        return ends[first + bounds[1]] - ends[first + bounds[0]]


def _ends(code: int) -> bool:
    """Whether a code ends a microbatch's backward on its rank."""
    return code & KIND_MASK in (Kind.B, Kind.I)


def long_enough(schedule: Schedule, costs: Costs | None = None) -> Schedule:
    """The schedule; without a flush more of the same order, where there is little of it and it is a
    family's own, as it stands or as it is arranged for the costs."""
    enough = 9 * schedule.ranks + 30
    entry = families().get(schedule.name)
    if schedule.flush or entry is None or schedule.microbatches >= enough:
        return schedule
    try:
        made = entry.generate(schedule.ranks, schedule.microbatches)
        if schedule != made and (costs is None or schedule != arranged(made, costs)):
            return schedule
        return entry.generate(schedule.ranks, enough)
    except InputError:  # larger than schedules are made
        return schedule
