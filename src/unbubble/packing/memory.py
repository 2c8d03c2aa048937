"""Memory: what an order may hold while it is being made, counted in activations.

held    F           I           W
1 ──────┌───────────┐
½       │           └───────────┐
0 ──────┘                       └────      one stage, one microbatch
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from unbubble.action import KIND_AND_STAGE, Kind, pack
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.schedule.placement import Placement

MOST = 1 << 60


@dataclass(frozen=True)
class Memory:
    """`taken[s]` units are held from the start of stage s's F, `kept[s]` of them to the end of its
    W and the rest to the end of its I; rank r holds at most `capacity[r]`."""

    taken: tuple[int, ...]
    kept: tuple[int, ...]
    capacity: tuple[int, ...]

    def changes(self, codes: Iterable[int]) -> "array[int]":
        """What each F, I and W of an order adds to what is held."""
        return array("q", map(self._changes.__getitem__, map(KIND_AND_STAGE.__and__, codes)))

    @cached_property
    def _changes(self) -> dict[int, int]:
        """What an action of every kind and stage adds."""
        changes = {}
        for stage, (taken, kept) in enumerate(zip(self.taken, self.kept, strict=True)):
            changes[pack(Kind.F, stage)] = taken
            changes[pack(Kind.I, stage)] = kept - taken
            changes[pack(Kind.W, stage)] = -kept
        return changes


def in_halves(placement: Placement, costs: Costs, microbatches: int) -> Memory:
    """Room for so many microbatches of a whole rank: half of each is held to the end of I, half to
    the end of W, unless the costs give the bytes of both."""
    parts = [(s.held_until_input_bytes, s.held_until_weight_bytes) for s in costs.stages]
    if any(sum(part) == 0 for part in parts):
        parts = [(1, 1)] * costs.num_stages
    taken = tuple(map(sum, parts))
    if microbatches * sum(taken) >= MOST:
        raise InputError(
            f"the activations of {microbatches} microbatches are more than {MOST} bytes; give the "
            "bytes held of fewer, or none"
        )
    return Memory(taken, tuple(kept for _, kept in parts), _room(placement, taken, microbatches))


def whole(placement: Placement, microbatches: int) -> Memory:
    """Room for so many microbatches of a whole rank, each stage's held whole to the end of W."""
    taken = (1,) * placement.num_stages
    return Memory(taken, taken, _room(placement, taken, microbatches))


def _room(placement: Placement, taken: tuple[int, ...], microbatches: int) -> tuple[int, ...]:
    return tuple(
        microbatches * sum(taken[s] for s in placement.stages_of(rank))
        for rank in range(placement.ranks)
    )
