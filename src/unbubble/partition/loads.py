"""Loads: what every rank has to do for one microbatch, under any split of the layers."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil, gcd, lcm
from operator import mul

from unbubble.costs import Costs, StageCosts
from unbubble.errors import InputError, excerpt
from unbubble.partition.split import Split, enough, improve
from unbubble.schedule import Placement


class Loads:
    """Loads as integers: ticks × `scale`, in which every rank's speed factor is whole and the
    copies of the model share the microbatches."""

    def __init__(self, layers: Costs, placement: Placement, split_backward: bool):
        self.layers, self.stages = layers.num_stages, placement.num_stages
        enough(self.layers, self.stages)
        self.ranks, self.rank_of = placement.ranks, placement.rank_of
        self.ranks_of = [self.rank_of[stage :: self.stages] for stage in range(self.stages)]
        speeds = [Fraction(layers.speed.get(rank, 1)) for rank in range(self.ranks)]
        whole = lcm(*(speed.denominator for speed in speeds))
        self.weights = [int(speed * whole) for speed in speeds]
        self.scale = whole * placement.copies
        self.each = [_load(row, i, split_backward) for i, row in enumerate(layers.stages)]
        """The load of every layer, in ticks."""
        self.upto = [0, *accumulate(self.each)]
        """That of the first j layers, for every j."""

    def of_stages(self, split: Sequence[int]) -> list[int]:
        """In ticks."""
        bounds = [self.upto[end] for end in accumulate(split)]
        return [b - a for a, b in pairwise([0, *bounds])]

    def of_ranks(self, stages: Sequence[int]) -> list[int]:
        """From those of the stages."""
        loads = [0] * self.ranks
        for ranks, load in zip(self.ranks_of, stages, strict=True):
            for rank in ranks:
                loads[rank] += load * self.weights[rank]
        return loads

    def loads(self, split: Sequence[int]) -> list[int]:
        return self.of_ranks(self.of_stages(split))

    def bottleneck(self, split: Sequence[int]) -> int:
        return max(self.loads(split))

    def score(self, split: Split, limit: int = 0) -> tuple[int, ...]:
        """Bottleneck, spread of the loads, then larger ones in front; of bottlenecks within a limit
        how even the stages are comes first."""
        stages = self.of_stages(split)
        loads = self.of_ranks(stages)
        return (*_spread(loads, stages, limit), *(-load for load in loads))

    def improved(self, split: Split, limit: int = 0) -> Split:
        """What a descent from a split finds, by that score."""
        return improve(
            split,
            lambda moved: self.score(moved, limit),
            lambda before, giver: self._helping(before, giver, limit),
        )

    def _helping(self, split: Split, giver: int, limit: int) -> set[int]:
        """The receivers of a layer of the giver's with which the score is better.

        Found from one receiver to the next, each of which hands on a layer of its own: scored by
        themselves the moves take many times longer.
        """
        stages_before = self.of_stages(split)
        loads_before = self.of_ranks(stages_before)
        best = _spread(loads_before, stages_before, limit)
        ends = [*accumulate(split)]
        found = set()
        for receivers in (range(giver + 1, self.stages), range(giver - 1, -1, -1)):
            stages, loads, hands_on = stages_before[:], loads_before[:], giver
            for receiver in receivers:
                up = receiver > hands_on
                layer = self.each[ends[hands_on] - 1 if up else ends[receiver]]
                for stage, change in ((hands_on, -layer), (receiver, layer)):
                    stages[stage] += change
                    for rank in self.ranks_of[stage]:
                        loads[rank] += change * self.weights[rank]
                if max(loads) <= best[0]:
                    spread = _spread(loads, stages, limit)
                    if spread < best or (spread == best and loads > loads_before):
                        found.add(receiver)
                hands_on = receiver
        return found

    def least(self) -> int:
        """A bound from the total, from the heaviest layer, and from what divides every load."""
        total = self.upto[-1] * (len(self.rank_of) // self.stages)
        shared = Fraction(total) / sum(Fraction(1, w) for w in self.weights)
        step = gcd(*self.each) * gcd(*self.weights) or 1
        return max(ceil(shared / step) * step, max(self.each) * min(self.weights))

    def proportional(self) -> Split:
        """Bounds where the running total passes equal shares, a layer a stage at least."""
        total, bounds = self.upto[-1], [0]
        for stage in range(1, self.stages):
            near = bisect_right(self.upto, total * stage // self.stages) - 1
            highest = self.layers - (self.stages - stage)
            bounds.append(min(max(near, bounds[-1] + 1), highest))
        return tuple(b - a for a, b in pairwise([*bounds, self.layers]))

    def one_stage_a_rank(self) -> Split:
        low = self.least()
        high = self.bottleneck(self.proportional())
        while low < high:
            middle = (low + high) // 2
            if self._reachable(middle)[-1]:
                high = middle
            else:
                low = middle + 1
        return self._balanced(low)

    def _reachable(self, limit: int) -> list[list[int]]:
        """For each stage the layer counts at which it can end with no rank above the limit."""
        ends: list[list[int]] = []
        starts = [0]
        for stage, rank in enumerate(self.rank_of):
            room, last = limit // self.weights[rank], self.layers - (self.stages - 1 - stage)
            found: list[int] = []
            for start in starts:
                stop = min(bisect_right(self.upto, self.upto[start] + room) - 1, last)
                found.extend(range(max(start, found[-1] if found else 0) + 1, stop + 1))
            ends.append(found)
            starts = found
        if ends[-1] and ends[-1][-1] != self.layers:
            ends[-1] = []
        return ends

    def _promising(self, limit: int) -> list[list[int]]:
        """Those of the reachable ends from which the rest can be reached too."""
        ends = [*self._reachable(limit)[:-1], [self.layers]]
        for stage in range(self.stages - 1, 0, -1):
            room, after = limit // self.weights[self.rank_of[stage]], ends[stage]
            kept = []
            for end in ends[stage - 1]:
                nearest = bisect_right(after, end)
                if nearest < len(after) and self.upto[after[nearest]] - self.upto[end] <= room:
                    kept.append(end)
            ends[stage - 1] = kept
        return ends

    def _balanced(self, limit: int) -> Split:
        """The best score among the splits within the limit, one stage a rank."""
        upto, starts = self.upto, [0]
        never = self.stages * limit * limit + 1
        best: dict[int, tuple[int, Split]] = {0: (0, ())}
        for rank, ends in zip(self.rank_of, self._promising(limit), strict=True):
            weight = self.weights[rank]
            following: dict[int, tuple[int, Split]] = {}
            for end in ends:
                spread, before = never, Split()
                for i in range(bisect_left(starts, end) - 1, -1, -1):
                    load = (upto[end] - upto[starts[i]]) * weight
                    if load > limit:
                        break
                    found, split = best[starts[i]]
                    found += load * load
                    # of equal spread the one with more layers in front
                    if found < spread or (found == spread and split > before):
                        spread, before = found, split
                following[end] = spread, (*before, end - sum(before))
            starts, best = ends, following
        return best[self.layers][1]


def _spread(loads: Sequence[int], stages: Sequence[int], limit: int) -> tuple[int, int, int, int]:
    """The score of loads, but for which are in front."""
    most = max(loads)
    uneven = sum(map(mul, stages, stages)) if limit else 0
    return max(most, limit), uneven, most, sum(map(mul, loads, loads))


def _load(row: StageCosts, layer: int, split_backward: bool) -> int:
    backward = None if split_backward else row.full_backward
    if backward is None:
        if row.backward_input is None or row.backward_weight is None:
            raise InputError(
                f"layer {layer}"
                + (f", {excerpt(row.name)!r}," if row.name else "")
                + " has no backward_input and backward_weight, "
                "which a schedule that splits the backward needs"
            )
        backward = row.backward_input.plus(row.backward_weight)
        if split_backward:
            backward = backward.plus(row.recompute_weight)
    return row.forward.total + backward.total + row.recompute.total
