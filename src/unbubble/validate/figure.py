"""Figure: one published number beside ours."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from unbubble.costs import Costs
from unbubble.families import family
from unbubble.schedule.order import Schedule
from unbubble.simulate import Timeline, simulate


@dataclass(frozen=True, kw_only=True)
class Figure:
    """`theirs` as it is printed, `ours` exactly; `case` and `what` say of what it is.

    Half of the last printed digit is the tolerance, and `allowed` where another model is known to
    differ. `at_most`: theirs is what a search of its authors reached, so that a smaller one of ours
    is good as well. `fraction`: a bubble, whose error is the difference; that of any other figure
    is relative.
    """

    case: str
    what: str
    theirs: str
    ours: Fraction
    source: str
    allowed: Fraction = Fraction(0)
    at_most: bool = False
    fraction: bool = True

    @property
    def tolerance(self) -> Fraction:
        """How far ours may be from theirs, in the figure's unit."""
        decimals = len(self.theirs.partition(".")[2])
        return Fraction(1, 2 * 10**decimals) + self.allowed

    @property
    def error(self) -> Fraction:
        theirs = Fraction(self.theirs)
        return self.ours - theirs if self.fraction else self.ours / theirs - 1

    @property
    def good(self) -> bool:
        """Whether it is reproduced within the tolerance (`at_most`: or smaller)."""
        difference = self.ours - Fraction(self.theirs)
        return difference <= self.tolerance and (self.at_most or -difference <= self.tolerance)


def fitted(
    name: str, ranks: int, microbatches: int, virtual: int | None = None, **times: Any
) -> tuple[Schedule, Timeline, Costs]:
    """A schedule made for the given times of a whole rank (those of `Costs.uniform`), simulated."""
    schedule = family(name).fitted(
        ranks,
        microbatches,
        virtual,
        costs_of=lambda order: Costs.uniform(order.placement, **times),
    )
    costs = Costs.uniform(schedule.placement, **times)
    return schedule, simulate(schedule, costs), costs


def in_unit(timeline: Timeline, ticks: int) -> Fraction:
    """Ticks in the unit of the given times, exactly."""
    return Fraction(ticks, timeline.ticks_per_unit)
