"""Search: all splits over ranks that hold several stages, to prove that none is better."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, combinations_with_replacement, pairwise
from operator import add

from unbubble.partition.loads import Loads
from unbubble.partition.split import Split

State = tuple[tuple[int, int], ...]
"""The interval of layers that is left in each region."""


def prove(loads: Loads, split: Split, budget: int) -> tuple[Split, int]:
    """Better splits until none is left: the best one, and the bound that was reached."""
    search, low = Search(loads, budget), loads.least()
    while (best := loads.bottleneck(split)) > low:
        found = search.within(best - 1)
        if found is None:
            return split, low if search.gave_up else best
        split = loads.improved(found)
    return split, best


class Search:
    """All splits over ranks that hold several stages, rank after rank.

    Placements visit the ranks in passes, up or down. A pass up moves a cursor up through the
    layers, one down moves it down, so that after some ranks what is left is one interval of layers
    for each region: a pass up and the pass down after it (a V) close in on each other in one
    region, any other pass has one of its own. Where regions meet is tried exhaustively.
    """

    def __init__(self, loads: Loads, budget: int):
        self.loads, self.budget = loads, budget
        ranks, order = loads.ranks, loads.rank_of[: loads.ranks]
        passes = [loads.rank_of[i : i + ranks] for i in range(0, len(loads.rank_of), ranks)]
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
        self.gave_up = self.budget <= 0 or len(loads.rank_of) != loads.stages

    def within(self, limit: int) -> Split | None:
        """A split with no rank above the limit; None if there is none, or on giving up."""
        if self.gave_up:
            return None
        *least, all_stages = accumulate(self.loads.ranks * len(region) for region in self.regions)
        spare = range(self.loads.layers - all_stages + 1)
        for extra in combinations_with_replacement(spare, len(least)):
            self.budget -= 1
            cuts = map(add, least, extra)  # every region has a layer for each of its stages
            found = self._from(tuple(pairwise((0, *cuts, self.loads.layers))), limit)
            if found is not None or self.gave_up:
                return found
        return None

    def _from(self, start: "State", limit: int) -> Split | None:
        rooms = [limit // self.loads.weights[rank] for rank in self.order]
        came_from: list[dict[State, State]] = []
        states: Iterable[State] = [start]
        for number in range(self.loads.ranks - 1):
            left = sum(rooms[number + 1 :])
            found: dict[State, State] = {}
            for state in states:
                idle = rooms[number] + left - self._load(state)
                for following, unused in self._next(state, number, rooms[number]):
                    self.budget -= 1
                    if unused <= idle:
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

    def _load(self, state: "State") -> int:
        return sum(self.loads.upto[high] - self.loads.upto[low] for low, high in state)

    def _next(self, state: "State", number: int, room: int) -> "Iterable[tuple[State, int]]":
        """What may be left after one more rank has taken its layers, and what of its room."""
        upto, after = self.loads.upto, self.loads.ranks - 1 - number

        def taken(region: int, room: int, rest: "State") -> "Iterable[tuple[State, int]]":
            if region == len(state):
                yield rest, room
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

    def _split(self, chain: "Sequence[State]") -> Split:
        """Layers a stage from what was left after each rank; the last rank takes the rest."""
        held: dict[tuple[int, int], int] = {}
        ranks = self.loads.ranks
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
