"""Memory: what every rank holds over the step, in bytes or in microbatches of a whole rank.

Activations are held from the start of F: one part to the end of I, the other to the end of W; with
a full backward both to the end of B. A measured timeline has curves as well as a simulated one.
"""

from array import array
from fractions import Fraction
from itertools import accumulate
from math import lcm
from operator import itemgetter
from typing import NamedTuple

from unbubble.action import KIND_AND_STAGE, KIND_MASK, Kind, pack
from unbubble.costs import Costs
from unbubble.simulate.timeline import Timeline


class Curve(NamedTuple):
    """From `ticks[i]` to the next a rank holds `values[i]` / `scale`; before the first its base.

    Ticks ascend; where two are equal, the action of the first took no time.
    """

    ticks: "array[int]"
    values: list[int]
    scale: int = 1
    base: int = 0

    @property
    def peak(self) -> Fraction:
        return Fraction(max(self.values, default=self.base), self.scale)


def activations(
    timeline: Timeline, costs: Costs | None = None, *, whole_until_weight: bool = False
) -> tuple[Curve, ...]:
    """Activations of every rank in microbatches of a whole rank (1/p of the layers).

    Each of a rank's v stages counts 1/v. The part that goes with I is half, or what the bytes of
    `costs` say, or none with `whole_until_weight`.
    """
    placement = timeline.schedule.placement
    shares = [
        Fraction(0) if whole_until_weight else _first_share(costs, s % placement.num_stages)
        for s in range(len(placement.rank_of))
    ]
    curves = []
    for rank in range(timeline.ranks):
        stages = placement.stages_of(rank)
        whole = Fraction(1, len(stages) // placement.copies or 1)
        scale = lcm(*((whole * shares[s]).denominator for s in stages), whole.denominator)
        parts = {
            s: (int(whole * shares[s] * scale), int(whole * (1 - shares[s]) * scale))
            for s in stages
        }
        ticks, values = _held(timeline, rank, parts, 0)
        curves.append(Curve(ticks, values, scale))
    return tuple(curves)


def memory(timeline: Timeline, costs: Costs) -> tuple[Curve, ...]:
    """Weights and activations of every rank in bytes, as the costs give them."""
    placement = timeline.schedule.placement
    curves = []
    for rank in range(timeline.ranks):
        rows = {s: costs.stages[s % costs.num_stages] for s in placement.stages_of(rank)}
        base = sum(row.weight_bytes for row in rows.values())
        parts = {
            s: (row.held_until_input_bytes, row.held_until_weight_bytes) for s, row in rows.items()
        }
        curves.append(Curve(*_held(timeline, rank, parts, base), 1, base))
    return tuple(curves)


def _first_share(costs: Costs | None, stage: int) -> Fraction:
    """The share of a stage's activations that goes with the input gradient: half if not given."""
    if costs is None:
        return Fraction(1, 2)
    row = costs.stages[stage]
    total = row.held_until_input_bytes + row.held_until_weight_bytes
    return Fraction(row.held_until_input_bytes, total) if total else Fraction(1, 2)


def _held(
    timeline: Timeline, rank: int, parts: dict[int, tuple[int, int]], base: int
) -> tuple["array[int]", list[int]]:
    """The changes of one rank, from each stage's two parts."""
    change = {}
    for stage, (first, second) in parts.items():
        change[pack(Kind.F, stage)] = first + second
        change[pack(Kind.B, stage)] = -first - second
        change[pack(Kind.I, stage)] = -first
        change[pack(Kind.W, stage)] = -second
    kinds = map(KIND_AND_STAGE.__and__, timeline.schedule.codes[rank])
    rows = zip(kinds, timeline.starts[rank], timeline.ends[rank], strict=True)
    changes = [
        (end if kind & KIND_MASK else start, change[kind])  # F is kind 0
        for kind, start, end in rows
        if kind in change
    ]
    changes.sort(key=itemgetter(0))  # stable: at one moment in the rank's order
    held = accumulate((change for _, change in changes), initial=base)
    return array("q", map(itemgetter(0), changes)), list(held)[1:]
