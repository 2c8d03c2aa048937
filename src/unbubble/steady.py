"""Steady: how long the step of a pipeline takes that never flushes.

Its fill and drain happen once in a training run and belong to no step, so a step of m microbatches
is m times the period of its steady state: the time from one backward's end on the first stage to
the next one's.
"""

from fractions import Fraction

from unbubble.action import KIND_MASK, STAGE_MASK, STAGE_SHIFT, Kind
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import families
from unbubble.schedule import Schedule
from unbubble.simulate import Timeline, simulate
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
