"""Split: how many layers each stage holds, and what the stages then cost."""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import accumulate, cycle, pairwise
from typing import TypeVar

from unbubble.costs import Costs, Duration, StageCosts
from unbubble.errors import InputError

Split = tuple[int, ...]
"""Layers of each stage, in the order of the stages."""
Score = TypeVar("Score", int, Fraction, tuple[int, ...])


def even(layers: int, stages: int, *, remainder: str = "first") -> Split:
    """The naive split by count; the layers left over go one each to the first or last stages."""
    enough(layers, stages)
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
        recompute_weight=reduce(Duration.plus, (row.recompute_weight for row in rows)),
        held_until_input_bytes=sum(row.held_until_input_bytes for row in rows),
        held_until_weight_bytes=sum(row.held_until_weight_bytes for row in rows),
        weight_bytes=sum(row.weight_bytes for row in rows),
        output_bytes=rows[-1].output_bytes,
    )


def improve(
    split: Split,
    score: Callable[[Split], Score],
    helping: Callable[[Split, int], Container[int]] | None = None,
) -> Split:
    """Descend by moving single layers between any two stages (all between shift along), taking
    each move that helps, until none does. `helping` tells to whom a split's giver can give so that
    it does; without it every move is scored."""
    best, stages = score(split), range(len(split))
    moves = [(giver, receiver) for giver in stages for receiver in stages if giver != receiver]
    failed = 0
    asked: tuple[Split, int] | None = None
    worth: Container[int] = stages
    for giver, receiver in cycle(moves):
        if failed == len(moves):
            break
        if helping and asked != (split, giver):
            asked = split, giver
            worth = helping(split, giver) if split[giver] > 1 else ()
        # a move that helped may help again
        while receiver in worth and split[giver] > 1:
            moved = _moved(split, giver, receiver)
            if (found := score(moved)) >= best:
                break
            split, best, failed = moved, found, -1
        failed += 1
    return split


def _moved(split: Split, giver: int, receiver: int) -> Split:
    moved = list(split)
    moved[giver] -= 1
    moved[receiver] += 1
    return tuple(moved)


def enough(layers: int, stages: int) -> None:
    if layers < stages:
        raise InputError(
            f"{stages} stages need at least {stages} layers and there are {layers}; "
            f"every stage holds at least one, so ranks × stages a rank is at most {layers}"
        )
