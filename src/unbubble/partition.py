"""Layers to stages, exactly: the split whose busiest rank is as little busy as can be.

A rank's load is F + B of one microbatch over all of its stages, times its speed factor. With one
stage a rank the optimum is found by bisection over the load, exact in integers. With several, a
descent finds a split and an exhaustive search over the ranks proves that no better one exists, or
gives up within a budget and leaves a lower bound; of the splits within 1 % of the best the one
with the most even stages is taken, as a rank's stages run one at a time. Every stage holds at least
one layer.

    5 equal layers over 4 ranks: [2, 1, 1, 1], never [2, 2, 1, 0]

Among equals the loads that differ least win, then the larger ones in front: under 1F1B a slow
first stage costs less than a slow last one, as its fill is paid before the steady state.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from itertools import accumulate, combinations, cycle, pairwise
from math import ceil, floor, lcm
from typing import TypeVar

from unbubble.costs import Costs, Duration, StageCosts
from unbubble.errors import InputError
from unbubble.schedule import Placement, Schedule
from unbubble.simulate import simulate

Split = tuple[int, ...]
"""Layers of each stage, in the order of the stages."""
Score = TypeVar("Score", int, tuple[int, ...])

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
    problem = _Problem(layers, placement, split_backward)
    if max(map(placement.rank_of.count, placement.rank_of)) == placement.copies == 1:
        split = problem.one_stage_a_rank()
        bound, proven = problem.bottleneck(split), True
    else:
        starts = [even(problem.layers, problem.stages), problem.proportional()]
        split = min((improve(s, problem.score) for s in starts), key=problem.score)
        split, bound = _prove(problem, split, budget)
        proven = bound == problem.bottleneck(split)
        within = floor(problem.bottleneck(split) * (1 + slack))
        rounder = (improve(s, problem.evenness(within)) for s in (split, *starts))
        split = min(rounder, key=problem.evenness(within))
    return Partition(
        layers_per_stage=split,
        loads=rank_loads(layers, placement, split, split_backward=split_backward),
        optimal_bottleneck=Fraction(bound, problem.scale),
        proven=proven,
    )


def rank_loads(
    layers: Costs, placement: Placement, split: Sequence[int], *, split_backward: bool = False
) -> tuple[Fraction, ...]:
    """The load of every rank under any split, in ticks."""
    problem = _Problem(layers, placement, split_backward)
    return tuple(Fraction(load, problem.scale) for load in problem.loads(split))


def fastest(
    layers: Costs, schedule: Schedule, *, budget: int = SIMULATED_ACTIONS
) -> tuple[Split, int]:
    """The split with the smallest makespan that a descent finds, and that makespan in ticks.

    It starts from the smallest bottleneck and from the even split, so it is never slower than
    either; it is not proven to be optimal. `budget` bounds the actions that are simulated.
    """
    placement = schedule.placement
    balanced = partition(layers, placement, split_backward=schedule.splits_backward, budget=0)
    starts = (balanced.layers_per_stage, even(layers.num_stages, placement.num_stages))
    left = max(budget // len(schedule), 100)
    seen: dict[Split, int] = {}

    def score(split: Split) -> int:
        if split not in seen:
            if len(seen) == left:
                raise _Spent
            seen[split] = simulate(schedule, stage_costs(layers, split)).makespan
        return seen[split]

    with suppress(_Spent):
        for start in sorted(starts, key=score):
            improve(start, score)
    split, makespan = min(seen.items(), key=lambda pair: (pair[1], pair[0]))
    return split, makespan


class _Spent(Exception):  # noqa: N818  # not an error
    """The budget of a descent is spent."""


def even(layers: int, stages: int, *, remainder: str = "first") -> Split:
    """The naive split by count; the layers left over go one each to the first or last stages."""
    _enough(layers, stages)
    each, left = divmod(layers, stages)
    more = (each + 1,) * left
    fewer = (each,) * (stages - left)
    return more + fewer if remainder == "first" else fewer + more


def stage_costs(layers: Costs, split: Sequence[int]) -> Costs:
    """The costs of stages that hold consecutive layers: times and bytes add up, and a stage's
    output is that of its last layer."""
    if sum(split) != layers.num_stages or min(split) < 1:
        raise InputError(
            f"the split {list(split)} holds {sum(split)} layers and the costs {layers.num_stages}; "
            "every stage holds at least one layer, and every layer is on one stage"
        )
    bounds = [0, *accumulate(split)]
    stages = (_stage(layers.stages[a:b]) for a, b in pairwise(bounds))
    return replace(layers, stages=tuple(stages))


def _stage(rows: Sequence[StageCosts]) -> StageCosts:
    def total(durations: Iterable[Duration | None]) -> Duration | None:
        known = [d for d in durations if d is not None]
        return reduce(Duration.plus, known) if len(known) == len(rows) else None

    measured = any(row.backward is not None for row in rows)
    ends = dict.fromkeys((rows[0].name, rows[-1].name))
    return StageCosts(
        name=" … ".join(filter(None, ends)),
        forward=reduce(Duration.plus, (row.forward for row in rows)),
        backward_input=total(row.backward_input for row in rows),
        backward_weight=total(row.backward_weight for row in rows),
        backward=total(row.full_backward for row in rows) if measured else None,
        overlapped=total(row.overlapped for row in rows),
        recompute=reduce(Duration.plus, (row.recompute for row in rows)),
        held_until_input_bytes=sum(row.held_until_input_bytes for row in rows),
        held_until_weight_bytes=sum(row.held_until_weight_bytes for row in rows),
        weight_bytes=sum(row.weight_bytes for row in rows),
        output_bytes=rows[-1].output_bytes,
    )


def improve(split: Split, score: Callable[[Split], Score]) -> Split:
    """Descend by moving single layers between any two stages (all between shift along), taking
    each move that helps, until none does."""
    best, stages = score(split), range(len(split))
    moves = [(giver, receiver) for giver in stages for receiver in stages if giver != receiver]
    failed = 0
    for giver, receiver in cycle(moves):
        if failed == len(moves):
            break
        # a move that helped may help again
        while split[giver] > 1:
            moved = _moved(split, giver, receiver)
            if (found := score(moved)) >= best:
                break
            split, best, failed = moved, found, -1
        failed += 1
    return split


def _moved(split: Split, giver: int, receiver: int) -> Split:
    return tuple(n + (s == receiver) - (s == giver) for s, n in enumerate(split))


def _enough(layers: int, stages: int) -> None:
    if layers < stages:
        raise InputError(
            f"{stages} stages need at least {stages} layers and there are {layers}; "
            f"every stage holds at least one, so ranks × stages a rank is at most {layers}"
        )


class _Problem:
    """Loads as integers: ticks × `scale`, in which every rank's speed factor is whole and the
    copies of the model share the microbatches."""

    def __init__(self, layers: Costs, placement: Placement, split_backward: bool):
        self.layers, self.stages = layers.num_stages, placement.num_stages
        _enough(self.layers, self.stages)
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
        high = self.bottleneck(improve(self.proportional(), self.score))
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

    def _balanced(self, limit: int) -> Split:
        """The best score among the splits within the limit, one stage a rank."""
        best: dict[int, tuple[int, Split]] = {0: (0, ())}
        for rank, ends in zip(self.rank_of, self._reachable(limit), strict=True):
            weight, following = self.weights[rank], {}
            for end in ends:
                options = []
                for start in range(end - 1, -1, -1):
                    load = (self.upto[end] - self.upto[start]) * weight
                    if load > limit:
                        break
                    if start in best:
                        spread, split = best[start]
                        options.append((spread + load * load, split, end - start))
                if options:
                    # of equal spread the one with more layers in front
                    spread, split, held = min(options, key=lambda o: (o[0], [-n for n in o[1]]))
                    following[end] = (spread, (*split, held))
            best = following
        return best[self.layers][1]


def _load(row: StageCosts, layer: int, split_backward: bool) -> int:
    backward = None if split_backward else row.full_backward
    if backward is None:
        if row.backward_input is None or row.backward_weight is None:
            raise InputError(
                f"layer {layer} {row.name}".rstrip()
                + " has no backward_input and backward_weight, "
                "which a schedule that splits the backward needs"
            )
        backward = row.backward_input.plus(row.backward_weight)
    return row.forward.total + backward.total + row.recompute.total


def _prove(problem: _Problem, split: Split, budget: int) -> tuple[Split, int]:
    """Better splits until none is left: the best one, and the bound that was reached."""
    search, low = _Search(problem, budget), problem.least()
    while (best := problem.bottleneck(split)) > low:
        found = search.within(best - 1)
        if found is None:
            return split, low if search.gave_up else best
        split = improve(found, problem.score)
    return split, best


class _Search:
    """All splits over ranks that hold several stages, rank after rank.

    Placements visit the ranks in passes, up or down. A pass up moves a cursor up through the
    layers, one down moves it down, so that after some ranks what is left is one interval of layers
    for each region: a pass up and the pass down after it (a V) close in on each other in one
    region, any other pass has one of its own. Where regions meet is tried exhaustively.
    """

    def __init__(self, problem: _Problem, budget: int):
        self.problem, self.budget = problem, budget
        ranks, order = problem.ranks, problem.rank_of[: problem.ranks]
        passes = [problem.rank_of[i : i + ranks] for i in range(0, len(problem.rank_of), ranks)]
        self.order = order
        self.regions: list[tuple[int, ...]] = []
        """The passes of each region, one or two, as their numbers."""
        for number, visited in enumerate(passes):
            if visited == order:
                self.regions.append((number,))
            elif visited == order[::-1] and self.regions and len(self.regions[-1]) == 1:
                self.regions[-1] = (number - 1, number)
            else:
                self.budget = 0  # no passes: not searched
        self.gave_up = self.budget <= 0 or len(problem.rank_of) != problem.stages

    def within(self, limit: int) -> Split | None:
        """A split with no rank above the limit; None if there is none, or on giving up."""
        if self.gave_up:
            return None
        ranks = self.problem.ranks
        sizes = [ranks * len(region) for region in self.regions]
        for cuts in combinations(range(1, self.problem.layers), len(sizes) - 1):
            state = tuple(pairwise((0, *cuts, self.problem.layers)))
            if all(b - a >= size for (a, b), size in zip(state, sizes, strict=True)):
                if (found := self._from(state, limit)) is not None:
                    return found
                if self.gave_up:
                    return None
        return None

    def _from(self, start: "_State", limit: int) -> Split | None:
        rooms = [limit // self.problem.weights[rank] for rank in self.order]
        came_from: list[dict[_State, _State]] = []
        states: Iterable[_State] = [start]
        for number in range(self.problem.ranks - 1):
            left = sum(rooms[number + 1 :])
            found: dict[_State, _State] = {}
            for state in states:
                for following in self._next(state, number, rooms[number]):
                    self.budget -= 1
                    if self._load(following) <= left:
                        found.setdefault(following, state)
                if self.budget <= 0:
                    self.gave_up = True
                    return None
            came_from.append(found)
            states = found
        last = next(iter(states), None)
        if last is None or self._load(last) > rooms[-1]:
            return None
        chain = [last]
        for found in reversed(came_from):
            chain.append(found[chain[-1]])
        return self._split(chain[::-1])

    def _load(self, state: "_State") -> int:
        return sum(self.problem.upto[high] - self.problem.upto[low] for low, high in state)

    def _next(self, state: "_State", number: int, room: int) -> "Iterable[_State]":
        """What may be left after one more rank has taken its layers."""
        upto, after = self.problem.upto, self.problem.ranks - 1 - number

        def taken(region: int, room: int, rest: "_State") -> "Iterable[_State]":
            if region == len(state):
                yield rest
                return
            low, high = state[region]
            both = len(self.regions[region]) == 2
            least = after * (2 if both else 1)
            for new_low in range(low + 1, high - least + 1 - both):
                room_low = room - (upto[new_low] - upto[low])
                if room_low < 0:
                    break
                if not both:
                    yield from taken(region + 1, room_low, (*rest, (new_low, high)))
                    continue
                for new_high in range(high - 1, new_low + least - 1, -1):
                    room_high = room_low - (upto[high] - upto[new_high])
                    if room_high < 0:
                        break
                    yield from taken(region + 1, room_high, (*rest, (new_low, new_high)))

        return taken(0, room, ())

    def _split(self, chain: "Sequence[_State]") -> Split:
        """Layers a stage from what was left after each rank; the last rank takes the rest."""
        held: dict[tuple[int, int], int] = {}
        ranks = self.problem.ranks
        for number, (before, after) in enumerate(pairwise(chain)):
            for region, passes in enumerate(self.regions):
                held[passes[0], number] = after[region][0] - before[region][0]
                if len(passes) == 2:
                    held[passes[1], ranks - 1 - number] = before[region][1] - after[region][1]
        for region, passes in enumerate(self.regions):
            rest = chain[-1][region][1] - chain[-1][region][0]
            held[passes[0], ranks - 1] = rest if len(passes) == 1 else rest - 1
            if len(passes) == 2:
                held[passes[1], 0] = 1
        return tuple(held[key] for key in sorted(held))


_State = tuple[tuple[int, int], ...]
