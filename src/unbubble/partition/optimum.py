"""Optimum: the split with the smallest bottleneck, and the fastest one that a descent finds."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from unbubble.costs import Costs
from unbubble.partition.loads import Loads
from unbubble.partition.search import prove
from unbubble.partition.split import Split, even, improve, stage_costs
from unbubble.schedule import Placement, Schedule
from unbubble.simulate import simulate
from unbubble.steady import long_enough, period

SLACK = Fraction(1, 100)
SIMULATED_ACTIONS = 20_000_000
"""Actions that the descent over the makespan may simulate; about ten seconds."""
PROOF_BUDGET = 400_000
"""Partial splits that the proof for several stages a rank may visit; about a second."""


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A split and the load of every rank under it, in ticks.

    `optimal_bottleneck` is the smallest possible bottleneck, or, where not `proven`, a bound that
    none can be below.
    """

    layers_per_stage: Split
    loads: tuple[Fraction, ...]
    optimal_bottleneck: Fraction
    proven: bool

    @property
    def bottleneck(self) -> Fraction:
        """The load of the busiest rank, in ticks."""
        return max(self.loads)


def partition(
    layers: Costs,
    placement: Placement,
    *,
    split_backward: bool = False,
    slack: Fraction = SLACK,
    budget: int = PROOF_BUDGET,
) -> Partition:
    """The split of the layers with the smallest bottleneck.

    `split_backward` counts I + W as the backward even where the full one has a time of its own.
    `slack` is the share of the bottleneck that more even stages may cost, where a rank holds
    several; 0 takes the smallest bottleneck whatever the stages.
    Raises InputError where there are fewer layers than stages or a layer's backward is unknown.
    """
    loads = Loads(layers, placement, split_backward)
    if len(placement.rank_of) == placement.ranks and placement.copies == 1:
        split = loads.one_stage_a_rank()
        bound, proven = loads.bottleneck(split), True
    else:
        starts = [even(loads.layers, loads.stages), loads.proportional()]
        split = min(map(loads.improved, starts), key=loads.score)
        split, bound = prove(loads, split, budget)
        proven = bound == loads.bottleneck(split)
        within = floor(loads.bottleneck(split) * (1 + slack))
        rounder = (loads.improved(start, within) for start in (split, *starts))
        split = min(rounder, key=lambda found: loads.score(found, within))
    return Partition(
        layers_per_stage=split,
        loads=rank_loads(layers, placement, split, split_backward=split_backward),
        optimal_bottleneck=Fraction(bound, loads.scale),
        proven=proven,
    )


def rank_loads(
    layers: Costs, placement: Placement, split: Sequence[int], *, split_backward: bool = False
) -> tuple[Fraction, ...]:
    """The load of every rank under any split, in ticks."""
    loads = Loads(layers, placement, split_backward)
    return tuple(Fraction(load, loads.scale) for load in loads.loads(split))


def fastest(
    layers: Costs, schedule: Schedule, *, budget: int = SIMULATED_ACTIONS
) -> tuple[Split, Fraction]:
    """The split with the smallest makespan that a descent finds, and that makespan in ticks;
    without a flush the split with the smallest period of the steady state, and m times that.

    It starts from the smallest bottleneck and from the even split, so it is never slower than
    either; it is not proven to be optimal. `budget` bounds the actions that are simulated.
    """
    placement = schedule.placement
    balanced = partition(layers, placement, split_backward=schedule.splits_backward, budget=0)
    starts = (balanced.layers_per_stage, even(layers.num_stages, placement.num_stages))
    lasting = long_enough(schedule)
    left = max(budget // len(lasting), 100)
    seen: dict[Split, Fraction] = {}

    def score(split: Split) -> Fraction:
        if split not in seen:
            if len(seen) == left:
                raise _Spent
            timeline = simulate(lasting, stage_costs(layers, split))
            if schedule.flush:
                seen[split] = Fraction(timeline.makespan)
            else:
                seen[split] = schedule.microbatches * period(timeline)
        return seen[split]

    with suppress(_Spent):
        for start in sorted(starts, key=score):
            improve(start, score)
    split, makespan = min(seen.items(), key=lambda pair: (pair[1], pair[0]))
    return split, makespan


class _Spent(Exception):  # noqa: N818  # not an error
    """The budget of a descent is spent."""
