"""What if: the same order with other costs, and what each change would win.

what_ifs(schedule, costs)      every stage 10 % faster, transfers free, stages balanced, …
simulate(schedule, faster(costs, 3, Fraction(1, 10))).makespan
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from operator import mul
from typing import NamedTuple

from unbubble.costs import TIMES, Costs, Duration, Edge, StageCosts
from unbubble.errors import InputError
from unbubble.quantity import percent
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import Placement
from unbubble.simulate.simulation import simulate


class WhatIf(NamedTuple):
    """A change and the step with it; `gain` is the part of the time per microbatch that it wins,
    negative where it costs."""

    change: str
    step: Fraction
    gain: Fraction


def what_ifs(
    schedule: Schedule,
    costs: Costs,
    *,
    by: Fraction = Fraction(1, 10),
    regenerate: Callable[[int], Schedule] | None = None,
) -> tuple[WhatIf, ...]:
    """Every change that is worth asking for, the largest gain first; steps in units of the costs.

    Each stage faster `by` a part of its time, transfers free, no overhead, all stages equal; and,
    where `regenerate(m)` makes the schedule for m microbatches, twice as many of them.
    """
    now = _step(schedule, costs)
    found = []

    def ask(change: str, changed: Costs, order: Schedule = schedule) -> None:
        step = _step(order, changed)
        more = Fraction(order.microbatches, schedule.microbatches)
        found.append(WhatIf(change, step, 1 - step / more / now if now else Fraction(0)))

    for stage in range(costs.num_stages):
        ask(f"stage {stage} {percent(by, 0)} faster", faster(costs, stage, by))
    ask("transfers free", free_transfers(costs))
    ask("no overhead", without_overhead(costs))
    ask("all stages equal", balanced(costs, schedule.placement))
    if regenerate is not None:
        twice = 2 * schedule.microbatches
        ask(f"{twice} microbatches", costs, regenerate(twice))
    return tuple(sorted(found, key=lambda row: -row.gain))


def faster(costs: Costs, stage: int, by: Fraction) -> Costs:
    """The costs with every time of a stage shorter `by` a part of it; exact, on finer ticks."""
    if not 0 <= stage < costs.num_stages:
        raise InputError(f"stage {stage} is not one of the {costs.num_stages} stages")
    if not by <= 1:
        raise InputError(f"a time cannot be shorter by {percent(by, 0)} of itself")
    finer = finer_ticks(costs, by.denominator)
    left = _map_times(finer.stages[stage], lambda ticks: int(ticks * (1 - by)))
    stages = (*finer.stages[:stage], left, *finer.stages[stage + 1 :])
    return replace(finer, stages=stages)


def free_transfers(costs: Costs) -> Costs:
    """The costs with nothing spent on transfers, neither on the wire nor on posting them."""
    return replace(
        costs, edge=Edge(), edges={}, send_host=0, recv_host=0, overlap=True, channel="unlimited"
    )


def without_overhead(costs: Costs) -> Costs:
    """The costs without the runtime's own time: launches, posts, what surrounds each action."""
    stages = tuple(_map_durations(row, lambda d: d._replace(overhead=0)) for row in costs.stages)
    return replace(costs, stages=stages, action_overhead=0, send_host=0, recv_host=0)


def without_recompute(costs: Costs) -> Costs:
    """The costs with no forward run again in a backward."""
    none = Duration()
    stages = tuple(replace(s, recompute=none, recompute_weight=none) for s in costs.stages)
    return replace(costs, stages=stages)


def balanced(costs: Costs, placement: Placement) -> Costs:
    """The costs with every stage at the mean of all, as long as they take on their ranks, and the
    ranks of equal speed; on finer ticks.

    Where some stages lack a time that others have, it stays as it is.
    """
    speeds = [costs.speed.get(rank, Fraction(1)) for rank in range(placement.ranks)]
    factors = [speeds[rank] for rank in placement.rank_of]
    count = len(factors)
    finer = finer_ticks(costs, count)
    means: dict[str, Duration] = {}
    for name in TIMES:
        column = [getattr(row, name) for row in finer.stages] * placement.copies
        if None not in column:
            parts = zip(*column, strict=True)
            means[name] = Duration(*(round(sum(map(mul, part, factors)) / count) for part in parts))
    stages = tuple(replace(row, **means) for row in finer.stages)  # type: ignore[arg-type]
    optimizer = round(finer.tail.optimizer * sum(speeds) / placement.ranks)
    return replace(finer, stages=stages, speed={}, tail=replace(finer.tail, optimizer=optimizer))


def finer_ticks(costs: Costs, factor: int) -> Costs:
    """The same costs, each tick split into `factor`."""

    def split(edge: Edge) -> Edge:
        return Edge(edge.latency * factor, edge.ticks_per_byte * factor)

    tail = costs.tail
    return replace(
        costs,
        stages=tuple(_map_times(row, lambda ticks: ticks * factor) for row in costs.stages),
        ticks_per_unit=costs.ticks_per_unit * factor,
        edge=split(costs.edge),
        edges={ranks: split(edge) for ranks, edge in costs.edges.items()},
        send_host=costs.send_host * factor,
        recv_host=costs.recv_host * factor,
        action_overhead=costs.action_overhead * factor,
        tail=replace(
            tail,
            reduce=tail.reduce * factor,
            clip=tail.clip * factor,
            optimizer=tail.optimizer * factor,
        ),
    )


def _step(schedule: Schedule, costs: Costs) -> Fraction:
    timeline = simulate(schedule, costs)
    return Fraction(timeline.length, costs.ticks_per_unit)


def _map_times(row: StageCosts, change: Callable[[int], int]) -> StageCosts:
    return _map_durations(row, lambda duration: Duration(*map(change, duration)))


def _map_durations(row: StageCosts, change: Callable[[Duration], Duration]) -> StageCosts:
    times = {name: getattr(row, name) for name in TIMES}
    return replace(row, **{n: change(t) for n, t in times.items() if t is not None})  # type: ignore[arg-type]
