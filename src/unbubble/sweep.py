"""Sweep: more and more microbatches (and stages a rank), and where that stops to pay.

The prediction is the simulation's; beside it may stand what was measured. If throughput does not
follow the prediction, the bubble is not what limits the run: doubling m from 8 to 16 on 8 ranks
should give × 1.30, and a run that gives × 0.99 is bound by something that every microbatch costs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import Family
from unbubble.schedule import Schedule
from unbubble.simulate import Timeline, simulate
from unbubble.steady import bubble_fraction, step_time

PAYS = Fraction(2, 100)
"""A doubling of m that gains less than this share does not pay."""
FOLLOWS = (Fraction(1, 2), Fraction(3, 2))
"""The share of the predicted gain within which a measured one counts as following it."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One simulated step. `throughput` is in microbatches a unit of time; `observed` in the
    caller's own measure, divided by the control's where there is one."""

    microbatches: int
    virtual: int
    timeline: Timeline
    throughput: Fraction
    bubble_fraction: Fraction
    observed: Fraction | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`stops_at` is the m from which a doubling no longer pays; `limited_by` "bubble", "other"
    or, where nothing was measured, ""."""

    text: str
    stops_at: int | None = None
    limited_by: str = ""


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


def sweep(
    family: Family,
    ranks: int,
    virtual: int | None,
    counts: Iterable[int],
    costs_of: Callable[[Schedule], Costs],
    *,
    observed: Mapping[int, Fraction] | None = None,
    pays: Fraction = PAYS,
) -> list[Row]:
    """One row for each m of `counts`; without measurements it ends with the first that no longer
    pays."""
    rows: list[Row] = []
    for m in counts:
        schedule = family.fitted(ranks, m, virtual, costs_of=costs_of)
        costs = costs_of(schedule)
        timeline = simulate(schedule, costs)
        time = step_time(timeline, costs) / costs.ticks_per_unit
        if not time:
            raise InputError("the step takes no time; give times above 0")
        rows.append(
            Row(
                microbatches=m,
                virtual=schedule.num_stages // ranks,
                timeline=timeline,
                throughput=m / time,
                bubble_fraction=bubble_fraction(timeline, costs),
                observed=None if observed is None else observed[m],
            )
        )
        if observed is None and len(rows) > 1 and _gain(rows[-2:]) < 1 + pays:
            break
    return rows


def _gain(rows: Sequence[Row]) -> Fraction:
    return rows[-1].throughput / rows[0].throughput


def verdict(rows: Sequence[Row], pays: Fraction = PAYS) -> Verdict:
    """Where more microbatches stop to pay or, of a measured sweep, whether the bubble limits it."""
    first, last = rows[0], rows[-1]
    if first.observed is None or last.observed is None:
        return _predicted(rows, pays)
    if first is last:
        raise InputError("a verdict needs measurements at two numbers of microbatches at least")
    seen, predicted = last.observed / first.observed, _gain(rows)
    facts = (
        f"m = {first.microbatches} to {last.microbatches}: observed × {float(seen):.2f}, the "
        f"bubble model predicts × {float(predicted):.2f}"
    )
    share = (seen - 1) / (predicted - 1) if predicted > 1 else Fraction(0)
    if share < FOLLOWS[0]:
        why = "not bubble-limited: every microbatch costs something that more of them do not hide"
        return Verdict(text=f"{facts}; {why}", limited_by="other")
    if share <= FOLLOWS[1]:
        return Verdict(
            text=f"{facts}; bubble-limited: the gain is the bubble's", limited_by="bubble"
        )
    why = "more than the bubble gives: something else improves with m, so sweep a control too"
    return Verdict(text=f"{facts}; {why}", limited_by="other")


def _predicted(rows: Sequence[Row], pays: Fraction) -> Verdict:
    stops = len(rows) > 1 and _gain(rows[-2:]) < 1 + pays
    at = rows[-2] if stops else rows[-1]
    bubble = f"the bubble is {float(at.bubble_fraction):.1%} there"
    if not stops:
        return Verdict(text=f"up to m = {at.microbatches} every doubling pays; {bubble}")
    text = f"from m = {at.microbatches} on a doubling gains less than {float(pays):.0%}; {bubble}"
    return Verdict(text=text, stops_at=at.microbatches)
