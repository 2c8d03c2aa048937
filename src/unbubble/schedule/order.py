"""Schedule: for every rank the order of its actions, and which rank holds which stage."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field

from unbubble.action import (
    JOINED,
    KIND_MASK,
    MICROBATCH_SHIFT,
    STAGE_MASK,
    STAGE_SHIFT,
    Action,
    Kind,
    is_transfer,
    overlap,
    unpack,
)
from unbubble.errors import InputError
from unbubble.schedule.placement import Placement, infer


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """Plain data: `codes[r]` is rank r's order, one code an action (two for an overlapped pair).

    A schedule is *compute-only* (F, B, I, W, overlapped pairs) or holds the sends and receives as
    well (`with_comms`). `flush` is False for PipeDream's pipelines that never drain.

        Schedule.of([["0F0", "0B0"], ["1F0", "1B0"]])
    """

    codes: tuple["array[int]", ...]
    placement: Placement
    name: str = ""
    flush: bool = True
    microbatches: int = field(init=False)

    def __post_init__(self) -> None:
        if len(self.codes) != self.placement.ranks:
            raise InputError(
                f"the schedule has {len(self.codes)} rows but its stages are placed on "
                f"{self.placement.ranks} ranks"
            )
        # the code's highest bits are the microbatch plus one
        highest = max((max(row, default=0) for row in self.codes), default=0)
        object.__setattr__(self, "microbatches", highest >> MICROBATCH_SHIFT)

    @classmethod
    def of(
        cls,
        rows: Sequence[Iterable[Action | str]],
        placement: Placement | None = None,
        *,
        name: str = "",
        flush: bool = True,
    ) -> "Schedule":
        """From rows of actions or their texts; the placement is inferred if not given."""
        from unbubble.action import parse

        codes = []
        for row in rows:
            order = array("q")
            for item in row:
                order.extend((parse(item) if isinstance(item, str) else item).codes)
            codes.append(order)
        return cls.of_codes(codes, placement, name=name, flush=flush)

    @classmethod
    def of_codes(
        cls,
        rows: Sequence["array[int]"],
        placement: Placement | None = None,
        *,
        name: str = "",
        flush: bool = True,
    ) -> "Schedule":
        """From rows of codes (see `unbubble.action`)."""
        if placement is None:
            placement = infer([{code >> STAGE_SHIFT & STAGE_MASK for code in row} for row in rows])
        return cls(codes=tuple(rows), placement=placement, name=name, flush=flush)

    def with_rows(self, rows: Sequence["array[int]"]) -> "Schedule":
        """The same placement, name and flush with other rows of codes."""
        return Schedule.of_codes(rows, self.placement, name=self.name, flush=self.flush)

    def named(self, name: str) -> "Schedule":
        """The same schedule under another name."""
        made = copy(self)
        object.__setattr__(made, "name", name)
        return made

    @property
    def ranks(self) -> int:
        return self.placement.ranks

    @property
    def num_stages(self) -> int:
        """Stages of one copy of the model."""
        return self.placement.num_stages

    @property
    def with_comms(self) -> bool:
        """Whether sends and receives are actions of their own."""
        return any(is_transfer(code) for row in self.codes for code in row)

    @property
    def has_backward(self) -> bool:
        """Whether there is any backward, which inference has none of."""
        backwards = (Kind.B, Kind.I)
        return any(code & KIND_MASK in backwards for row in self.codes for code in row)

    @property
    def splits_backward(self) -> bool:
        """Whether any backward is split into I and W."""
        halves = (Kind.I, Kind.W)
        return any(code & KIND_MASK in halves for row in self.codes for code in row)

    def actions(self, rank: int) -> Iterator[Action]:
        """A rank's order as readable actions."""
        return actions_of(self.codes[rank])

    def __len__(self) -> int:
        """Number of actions over all ranks, an overlapped pair counting as two."""
        return sum(map(len, self.codes))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return (self.codes, self.placement, self.flush) == (
            other.codes,
            other.placement,
            other.flush,
        )

    __hash__ = None  # type: ignore[assignment]  # mutable buffers

    def _repr_html_(self) -> str:
        from unbubble.report.notebook import schedule_html

        return schedule_html(self)

    def __repr__(self) -> str:
        return (
            f"<Schedule {self.name or 'custom'}: {self.ranks} ranks, {len(self.placement.rank_of)} "
            f"stages, {self.microbatches} microbatches, {len(self)} actions>"
        )


def without_comms(codes: Iterable["array[int]"]) -> list[list[int]]:
    """Where in every rank's row the codes stand that are no sends or receives."""
    return [[i for i, code in enumerate(row) if not is_transfer(code)] for row in codes]


def picked(
    rows: Iterable["array[int]"], places: Iterable[Iterable[int]]
) -> tuple["array[int]", ...]:
    """What every rank's row holds at some of its places: codes, or times of these."""
    return tuple(
        array("q", map(row.__getitem__, own)) for row, own in zip(rows, places, strict=True)
    )


def actions_of(row: Iterable[int]) -> Iterator[Action]:
    """The readable actions of a row of codes."""
    forward: Action | None = None
    for code in row:
        action = unpack(code)
        if code & JOINED:
            forward = action
        elif forward is not None:
            yield overlap(forward, action)
            forward = None
        else:
            yield action
