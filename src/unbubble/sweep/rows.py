"""Rows of a sweep: one step each, with twice the microbatches of the row before, or on other
ranks."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from unbubble.attribution import CLASSES, Attribution, attribute
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import Family
from unbubble.held import held_bytes
from unbubble.quantity import shown_size
from unbubble.schedule import Schedule
from unbubble.simulate import Timeline, simulate
from unbubble.steady import bubble_fraction, step_time

PAYS = Fraction(2, 100)
"""A doubling of m that gains less than this share does not pay."""

NOISY = 0.02
"""Where the odd and the even steps differ by more than this share, the machine disturbs them."""

Simulated = Callable[[Schedule, Costs], Timeline]


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Steps taken for real: the median time, the typical step, and by how much the odd and
    the even ones differ."""

    step_s: float
    typical: Timeline
    noise: float

    @cached_property
    def classes(self) -> dict[str, float]:
        """The five classes as shares of the step, each the mean over the ranks."""
        return shares(attribute(self.typical))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One step as predicted and, where it was measured, as it was.

    `throughput` is in microbatches a unit of time; `observed` in the caller's own measure, divided
    by the control's where there is one; the gains are over the row before, None in the first.
    A run's gain is over the row before as it was in the same launch, where that row's throughput
    was other than in its own by the part `drift`.
    `replicas` of the pipeline run side by side, and `throughput` is that of all of them.
    `peak_bytes` is what the fullest rank holds, None where the costs know no bytes; a row that does
    not fit into the memory is the last one and is only predicted.
    """

    microbatches: int
    virtual: int
    timeline: Timeline
    costs: Costs
    throughput: Fraction
    bubble_fraction: Fraction
    peak_bytes: int | None = None
    fits: bool = True
    gain: Fraction | None = None
    observed: Fraction | None = None
    observed_gain: Fraction | None = None
    taken: Taken | None = None
    drift: float = 0.0
    replicas: Fraction = Fraction(1)

    @property
    def ranks(self) -> int:
        return self.timeline.ranks

    @property
    def step(self) -> Fraction:
        """The predicted step in the unit of the costs."""
        return self.microbatches * self.replicas / self.throughput

    @cached_property
    def classes(self) -> dict[str, float]:
        """The five classes of the predicted step, as in `Taken`."""
        return shares(attribute(self.timeline, self.costs))


def shares(attribution: Attribution) -> dict[str, float]:
    """The five classes as shares of the step, each the mean over the ranks."""
    found: dict[str, float] = {}
    whole = len(attribution.ranks) * attribution.ladder.measured
    for name in CLASSES:
        total = sum(getattr(row, name) for row in attribution.ranks)
        key = name.partition("_")[0]  # imbalance is static and jitter
        found[key] = found.get(key, 0.0) + float(Fraction(total, whole))
    return found


def doublings(family: Family, ranks: int, virtual: int | None, most: int) -> list[int]:
    """m = 2, 4, 8, … up to `most`, as far as the family takes them."""
    found = []
    m = 2
    while m <= most:
        if not _refused(family, ranks, m, virtual):
            found.append(m)
        m *= 2
    if not found:
        raise InputError(
            f"{family.name} takes none of m = 2, 4, 8, … up to {most} on {ranks} ranks: "
            f"{_refused(family, ranks, m // 2, virtual)}"
        )
    return found


def _refused(family: Family, ranks: int, microbatches: int, virtual: int | None) -> str:
    try:
        family.check(ranks, microbatches, virtual)
    except InputError as error:
        return str(error)
    return ""


def predicted_row(
    schedule: Schedule,
    costs: Costs,
    before: Row | None = None,
    *,
    simulated: Simulated = simulate,
    step: Callable[[Timeline, Costs], Fraction] = step_time,
    memory_bytes: int | None = None,
) -> Row:
    """The row of a schedule; `step` says what of its timeline counts, in ticks.

    Raises InputError where a memory is given and the costs know no bytes, or the first row does not
    fit into it.
    """
    timeline = simulated(schedule, costs)
    time = step(timeline, costs) / costs.ticks_per_unit
    if not time:
        raise InputError("the step takes no time; give times above 0")
    throughput = schedule.microbatches / time
    held = held_bytes(timeline, costs)
    peak = max(held.peak) if held else None
    fits = memory_bytes is None or _fits(peak, memory_bytes)
    if before is None and not fits:
        raise InputError(
            f"m = {schedule.microbatches} already holds {shown_size(peak or 0)} on the fullest "
            f"rank, and the memory is {shown_size(memory_bytes or 0)}"
        )
    return Row(
        microbatches=schedule.microbatches,
        virtual=schedule.num_stages // schedule.ranks,
        timeline=timeline,
        costs=costs,
        throughput=throughput,
        bubble_fraction=bubble_fraction(timeline, costs),
        peak_bytes=peak,
        fits=fits,
        gain=None if before is None else throughput / before.throughput,
    )


def _fits(peak: int | None, memory_bytes: int) -> bool:
    if peak is None:
        raise InputError(
            "a memory was given and the costs know no bytes; a costs file gives stages or layers "
            "held_until_input_bytes, held_until_weight_bytes and weight_bytes"
        )
    return peak <= memory_bytes


def sweep(
    schedules: Iterable[Schedule],
    costs_of: Callable[[Schedule], Costs],
    *,
    observed: Mapping[int, Fraction] | None = None,
    pays: Fraction = PAYS,
    simulated: Simulated = simulate,
    memory_bytes: int | None = None,
) -> Iterator[Row]:
    """One row for each schedule; without measurements it ends with the first that no longer pays,
    or does not fit into the memory."""
    before: Row | None = None
    for schedule in schedules:
        row = predicted_row(
            schedule,
            costs_of(schedule),
            before,
            simulated=simulated,
            memory_bytes=memory_bytes,
        )
        if observed is not None:
            row = _with(row, observed[row.microbatches], before)
        yield row
        stops = row.gain is not None and row.gain < 1 + pays
        if not row.fits or (observed is None and stops):
            return
        before = row


def _with(row: Row, observed: Fraction, before: Row | None) -> Row:
    gain = observed / before.observed if before is not None and before.observed else None
    return replace(row, observed=observed, observed_gain=gain)


def over_ranks(
    schedules: Iterable[Schedule],
    costs_of: Callable[[Schedule], Costs],
    *,
    observed: Mapping[int, Fraction] | None = None,
    devices: int | None = None,
) -> Iterator[Row]:
    """One row for each schedule, which have other numbers of ranks; `observed` goes by those.

    With `devices` as many replicas of the pipeline run as there is room for, otherwise one.
    """
    before: Row | None = None
    for schedule in schedules:
        row = predicted_row(schedule, costs_of(schedule))
        replicas = Fraction(devices or row.ranks, row.ranks)
        throughput = row.throughput * replicas
        gain = throughput / before.throughput if before is not None else None
        row = replace(row, throughput=throughput, replicas=replicas, gain=gain)
        if observed is not None:
            row = _with(row, observed[row.ranks], before)
        yield row
        before = row
