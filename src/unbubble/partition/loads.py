"""Loads: what every rank has to do for one microbatch, under any split of the layers."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil, lcm

from unbubble.costs import Costs, StageCosts
from unbubble.errors import InputError, excerpt
from unbubble.partition.split import Split, enough
from unbubble.schedule import Placement


class Loads:
    """Loads as integers: ticks × `scale`, in which every rank's speed factor is whole and the
    copies of the model share the microbatches."""

    def __init__(self, layers: Costs, placement: Placement, split_backward: bool):
        self.layers, self.stages = layers.num_stages, placement.num_stages
        enough(self.layers, self.stages)
        self.ranks, self.rank_of = placement.ranks, placement.rank_of
        speeds = [Fraction(layers.speed.get(rank, 1)) for rank in range(self.ranks)]
        whole = lcm(*(speed.denominator for speed in speeds))
        self.weights = [int(speed * whole) for speed in speeds]
        self.scale = whole * placement.copies
        loads = [_load(row, i, split_backward) for i, row in enumerate(layers.stages)]
        self.upto = [0, *accumulate(loads)]
        """The load of the first j layers, in ticks, for every j."""
        self.heaviest = max(loads)

    def loads(self, split: Sequence[int]) -> list[int]:
        bounds, loads = [0, *accumulate(split)], [0] * self.ranks
        for placed, rank in enumerate(self.rank_of):
            stage = placed % self.stages
            load = self.upto[bounds[stage + 1]] - self.upto[bounds[stage]]
            loads[rank] += load * self.weights[rank]
        return loads

    def bottleneck(self, split: Sequence[int]) -> int:
        return max(self.loads(split))

    def score(self, split: Split) -> tuple[int, ...]:
        """Bottleneck, spread of the loads, then larger ones in front."""
        loads = self.loads(split)
        return (max(loads), sum(load * load for load in loads), *(-load for load in loads))

    def evenness(self, limit: int) -> Callable[[Split], tuple[int, ...]]:
        """Scores what is within the limit by how even the stages are, then as `score` does."""

        def score(split: Split) -> tuple[int, ...]:
            bounds = [self.upto[end] for end in accumulate(split)]
            stages = sum((b - a) ** 2 for a, b in pairwise([0, *bounds]))
            rest = self.score(split)
            return (max(rest[0], limit), stages, *rest)

        return score

    def least(self) -> int:
        """A bound from the total and from the heaviest layer."""
        total = self.upto[-1] * (len(self.rank_of) // self.stages)
        shared = Fraction(total) / sum(Fraction(1, w) for w in self.weights)
        return max(ceil(shared), self.heaviest * min(self.weights))

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
