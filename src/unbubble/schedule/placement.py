"""Placement: which rank holds which stage.

    linear(4)       one stage a rank          0 1 2 3
    looping(4, 2)   ranks in rounds           0 1 2 3 · 0 1 2 3        (interleaved)
    v_shape(4)      there and back            0 1 2 3 · 3 2 1 0        (ZB-V)
    bidirectional(4)  two copies of every stage: 0 1 2 3 and 3 2 1 0   (DualPipe, Chimera)

With copies, stage numbers run on: stages S … 2S−1 are the second copy of stages 0 … S−1, and a
microbatch stays within one copy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from unbubble.errors import InputError


@dataclass(frozen=True)
class Placement:
    """The rank of every stage, and how many copies of the model the stages make up.

    `rank_of[s]` is the rank of stage s; ranks are 0 … p−1 and each holds at least one stage.
    """

    rank_of: tuple[int, ...]
    copies: int = 1

    def __post_init__(self) -> None:
        if not self.rank_of or self.copies < 1 or len(self.rank_of) % self.copies:
            raise InputError(
                f"{len(self.rank_of)} placed stages do not make {self.copies} equal copies"
            )
        ranks = max(self.rank_of) + 1
        empty = sorted(set(range(ranks)) - set(self.rank_of))
        if empty or min(self.rank_of) < 0:
            raise InputError(f"ranks run from 0 and hold a stage each; rank {empty} holds none")

    @cached_property
    def ranks(self) -> int:
        """p, the number of pipeline ranks."""
        return max(self.rank_of) + 1

    @property
    def num_stages(self) -> int:
        """Stages of one copy of the model."""
        return len(self.rank_of) // self.copies

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages that a rank holds, ascending."""
        return self._held[rank]

    @cached_property
    def _held(self) -> tuple[tuple[int, ...], ...]:
        held: list[list[int]] = [[] for _ in range(self.ranks)]
        for stage, rank in enumerate(self.rank_of):
            held[rank].append(stage)
        return tuple(map(tuple, held))

    def is_first(self, stage: int) -> bool:
        """Whether the stage takes its input from the data, not from another stage."""
        return stage % self.num_stages == 0

    def is_last(self, stage: int) -> bool:
        """Whether the stage computes the loss."""
        return (stage + 1) % self.num_stages == 0

    @cached_property
    def next_rank(self) -> tuple[int, ...]:
        """For every stage the other rank that holds the next one; −1: none, or the same rank."""
        rank_of = self.rank_of
        return tuple(
            -1 if self.is_last(s) or rank_of[s + 1] == rank else rank_of[s + 1]
            for s, rank in enumerate(rank_of)
        )

    @cached_property
    def previous_rank(self) -> tuple[int, ...]:
        """For every stage the other rank that holds the one before; −1: none, or the same rank."""
        rank_of = self.rank_of
        return tuple(
            -1 if self.is_first(s) or rank_of[s - 1] == rank else rank_of[s - 1]
            for s, rank in enumerate(rank_of)
        )


def linear(ranks: int) -> Placement:
    return Placement(tuple(range(ranks)))


def looping(ranks: int, virtual: int) -> Placement:
    return Placement(tuple(range(ranks)) * virtual)


def v_shape(ranks: int, virtual: int = 2) -> Placement:
    """There and back, `virtual` passes over the ranks (2: a V, 4: a W)."""
    there = tuple(range(ranks))
    return Placement(
        tuple(r for i in range(virtual) for r in (there if i % 2 == 0 else there[::-1]))
    )


def bidirectional(ranks: int) -> Placement:
    there = tuple(range(ranks))
    return Placement(there + there[::-1], copies=2)


def infer(stages_by_rank: Sequence[Iterable[int]]) -> Placement:
    """The placement that a schedule's rows imply: one copy, each stage where it is used."""
    rank_of: dict[int, int] = {}
    for rank, stages in enumerate(stages_by_rank):
        for stage in stages:
            if rank_of.setdefault(stage, rank) != rank:
                raise InputError(
                    f"stage {stage} is used on rank {rank_of[stage]} and on rank {rank}; "
                    "a stage lives on one rank (a schedule with copies needs a plan file)"
                )
    missing = sorted(set(range(len(rank_of))) - set(rank_of))
    if missing:
        raise InputError(
            f"stages run from 0 without a gap; stage {missing[0]} is missing "
            f"(the highest used is {max(rank_of)})"
        )
    return Placement(tuple(rank_of[s] for s in range(len(rank_of))))
