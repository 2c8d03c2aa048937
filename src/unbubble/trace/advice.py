"""Advice: what a measured step would win by each change, from the simulator, best first.

Removing a cause is the difference of two rungs of the attribution's ladder. Other schedules, more
microbatches and no recompute are simulated with the costs of the measured step, against the
measured order with the same costs.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

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
    timeline: Timeline, attribution: Attribution, costs: Costs, family: str, replicas: bool = False
) -> list[Change]:
    """The changes that win something, the best first; `family` is that of the order, if known;
    `replicas`: there are other pipelines, which wait for the slowest at the step's end."""
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
        found |= dict(_schedules(order, costs, family))
    changes = [Change(what, gain, float(gain / total)) for what, gain in found.items() if gain > 0]
    return sorted(changes, key=lambda change: (-change.gain, change.what))


def _schedules(order: Schedule, costs: Costs, own: str) -> Iterator[tuple[str, Fraction]]:
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
        try:
            other = family.generate(p, m, v, costs=costs)
        except InputError:
            continue
        if other.num_stages != order.num_stages or other.placement.copies > 1 or not other.flush:
            continue
        if other.codes not in known and (then := _step(other, costs)) is not None:
            known.append(other.codes)
            yield f"the schedule {name} (its memory is not looked at)", Fraction(now - then)
        if name == own:
            try:
                longer = family.generate(p, 2 * m, v, costs=costs)
            except InputError:
                continue
            if (twice := _step(longer, costs)) is not None:
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
    for name, family in families().items():
        try:
            other = family.generate(p, m, v)
        except InputError:
            continue
        if other.codes == order.codes and other.flush == order.flush:
            return name
    return ""
