"""Advice: what a measured step would win by each change, from the simulator, best first.

Removing a cause is the difference of two rungs of the attribution's ladder. Other schedules, more
microbatches and no recompute are simulated with the costs of the measured step, against the
measured order with the same costs.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from unbubble.action import MICROBATCH_SHIFT
from unbubble.attribution import Attribution
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import families
from unbubble.schedule import Schedule
from unbubble.schedule.lowering import compute_only
from unbubble.simulate import Timeline, simulate
from unbubble.simulate.whatif import without_recompute

MAX_ACTIONS = 200_000
"""Larger orders are not tried out: the answer should come in seconds."""


class Change(NamedTuple):
    """One change and what the step would win, in ticks; `share` of the measured step."""

    what: str
    gain: Fraction
    share: float


def advice(
    timeline: Timeline,
    attribution: Attribution,
    costs: Costs,
    family: str,
    replicas: bool = False,
    calls: int = 1,
) -> list[Change]:
    """The changes that win something, the best first; `family` is that of the order, if known, or
    of each of its `calls`; `replicas`: there are other pipelines, which wait for the slowest at the
    step's end."""
    total = attribution.ladder.measured
    gains = attribution.gains
    found = {
        f"balance the stages{' and the replicas' * replicas}": gains.imbalance_static,
        "make every microbatch take the same time": gains.imbalance_jitter,
        "faster links, or communication behind compute": gains.communication,
        "less overhead of the runtime": gains.overhead,
    }
    order = compute_only(timeline.schedule)
    if len(order) <= MAX_ACTIONS and order.placement.copies == 1 and order.flush:
        found |= dict(_schedules(order, costs, family, calls))
    changes = [Change(what, gain, float(gain / total)) for what, gain in found.items() if gain > 0]
    return sorted(changes, key=lambda change: (-change.gain, change.what))


def _schedules(
    order: Schedule, costs: Costs, own: str, calls: int
) -> Iterator[tuple[str, Fraction]]:
    costs = replace(costs, edges={}) if _moves(order) else costs
    now = _step(order, costs)
    if now is None:
        return
    kept = without_recompute(costs)
    if kept != costs and (then := _step(order, kept)) is not None:
        yield "no recompute (its memory is not looked at)", Fraction(now - then)
    known = [order.codes]
    p, m, v = order.ranks, order.microbatches, order.num_stages // order.ranks
    for name, family in families().items():
        other = _made(name, p, m, v, costs) if family.adapts else _order(name, p, m, v)
        if other is None or other.num_stages != order.num_stages:
            continue
        if other.placement.copies > 1 or not other.flush:
            continue
        if other.codes not in known and (then := _step(other, costs)) is not None:
            known.append(other.codes)
            what = f"one call of {name} a step" if name == own else f"the schedule {name}"
            yield f"{what} (its memory is not looked at)", Fraction(now - then)
        if name == own and calls == 1:
            longer = _made(name, p, 2 * m, v, costs)
            if longer is not None and (twice := _step(longer, costs)) is not None:
                yield f"{2 * m} microbatches a step, for {m} of them", now - Fraction(twice, 2)


def _moves(order: Schedule) -> bool:
    return order.num_stages > order.ranks


def _step(order: Schedule, costs: Costs) -> int | None:
    """The step's ticks, or None where the costs do not fit (no time for a half of a backward)."""
    try:
        found = simulate(order, costs)
    except InputError:
        return None
    return found.length


def recognised(order: Schedule) -> str:
    """The family whose order this is, from the order of its actions alone; empty for none."""
    order = compute_only(order)
    p, m = order.ranks, order.microbatches
    v, rest = divmod(order.num_stages, p)
    if rest or len(order) > MAX_ACTIONS:
        return ""
    for name in families():
        other = _order(name, p, m, v)
        if other is not None and other.codes == order.codes and other.flush == order.flush:
            return name
    return ""


def called(order: Schedule) -> tuple[str, int]:
    """The family of which a step is several calls, one behind the other as where gradients are
    accumulated, and their number; an empty name for none."""
    order = compute_only(order)
    m = order.microbatches
    if len(order) > MAX_ACTIONS:
        return "", 1
    for calls in (calls for calls in range(2, m + 1) if m % calls == 0):
        first = _first_of(order, calls)
        if first is not None and (name := recognised(first)):
            return name, calls
    return "", 1


def _first_of(order: Schedule, calls: int) -> Schedule | None:
    """The first of so many calls, with a flush behind it, or None where the others do not repeat
    it."""
    later = order.microbatches // calls << MICROBATCH_SHIFT
    found = []
    for row in order.codes:
        length, rest = divmod(len(row), calls)
        if rest or any(b - a != later for a, b in zip(row, row[length:], strict=False)):
            return None
        found.append(row[:length])
    return Schedule.of_codes(found, order.placement)


def _made(name: str, p: int, m: int, v: int, costs: Costs | None = None) -> Schedule | None:
    """The family's order, or None where it has none of these sizes."""
    try:
        return families()[name].generate(p, m, v, costs=costs)
    except InputError:
        return None


_order = lru_cache(maxsize=32)(_made)
"""A job's pipelines have the same sizes, and there may be thousands of them."""
