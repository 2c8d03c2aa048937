"""Costs: how long each action of each stage takes, what each edge costs, what each stage holds.

Times are integers, *ticks*; `ticks_per_unit` says how many make one of the caller's units, chosen
so that every given time is exact. A file in seconds uses nanoseconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from unbubble import quantity
from unbubble.action import Kind
from unbubble.errors import InputError
from unbubble.schedule.placement import Placement

MAX_TICKS_PER_UNIT = 10**12
MAX_TICKS = 1 << 61
"""No time is longer, so that they add up in 64 bits."""

CHANNELS = ("unlimited", "link", "pair", "rank")
"""What a transfer waits for beside its two ends: nothing; the transfer before it on the same
directed link; everything posted earlier between the same two ranks (one communicator a pair); or
everything posted earlier on either rank (one communication stream a rank). The last two have
head-of-line blocking: a receive posted early holds up later sends."""


class Duration(NamedTuple):
    """The three parts of an action's time, in ticks: kernels at work, communication inside the
    action that nothing hides, and the runtime's own code."""

    compute: int = 0
    communication: int = 0
    overhead: int = 0

    @property
    def total(self) -> int:
        return self.compute + self.communication + self.overhead

    def plus(self, other: "Duration") -> "Duration":
        return Duration(
            self.compute + other.compute,
            self.communication + other.communication,
            self.overhead + other.overhead,
        )


TIMES = (
    "forward", "backward_input", "backward_weight", "backward", "overlapped", "recompute",
    "recompute_weight",
)  # fmt: skip
"""The fields of StageCosts that are times."""
TIME_OF = {
    Kind.F: "forward",
    Kind.B: "backward",
    Kind.I: "backward_input",
    Kind.W: "backward_weight",
    Kind.OVERLAP_F_B: "overlapped",
}
"""Which of them a kind of action takes."""


@dataclass(frozen=True, kw_only=True)
class StageCosts:
    """One stage (or one layer, to be partitioned) and one microbatch.

    `backward` is the full backward's own measured time; without it a full backward costs
    `backward_input` + `backward_weight`. A stage with `backward` alone cannot be split into I
    and W (both are None then). `recompute` is added to B, or to I where the backward is split;
    `recompute_weight` to W, where the runtime keeps nothing from I to W and runs the forward once
    more (as PyTorch does).
    Bytes: activations held to the end of I and, further, to the end of W; weights; the output that
    travels to the next stage.
    """

    name: str = ""
    forward: Duration = Duration()
    backward_input: Duration | None = None
    backward_weight: Duration | None = None
    backward: Duration | None = None
    overlapped: Duration | None = None
    recompute: Duration = Duration()
    recompute_weight: Duration = Duration()
    held_until_input_bytes: int = 0
    held_until_weight_bytes: int = 0
    weight_bytes: int = 0
    output_bytes: int = 0

    def of(self, kind: Kind) -> Duration | None:
        """The duration of F, B, I or W, recompute included; None where the costs do not say."""
        if kind is Kind.F:
            return self.forward
        if kind is Kind.W:
            base, again = self.backward_weight, self.recompute_weight
        else:
            base = self.backward_input if kind is Kind.I else self.full_backward
            again = self.recompute
        return base.plus(again) if base is not None and any(again) else base

    def recomputed(self, kind: Kind) -> Duration:
        """The part of B, I or W that runs the forward again."""
        return self.recompute_weight if kind is Kind.W else self.recompute

    @property
    def full_backward(self) -> Duration | None:
        """B without recompute: its own time where there is one, else I + W."""
        if self.backward is not None:
            return self.backward
        if self.backward_input is None or self.backward_weight is None:
            return None
        return self.backward_input.plus(self.backward_weight)


class Edge(NamedTuple):
    """One transfer between two ranks: `latency` ticks, and `ticks_per_byte` × the bytes sent."""

    latency: int = 0
    ticks_per_byte: Fraction = Fraction(0)

    def transfer(self, size_bytes: int) -> int:
        per_byte = self.ticks_per_byte
        return self.latency + (round(per_byte * size_bytes) if per_byte else 0)


@dataclass(frozen=True, kw_only=True)
class Tail:
    """What ends a step on every rank, in ticks: gradient reduction, clipping, optimizer."""

    reduce: int = 0
    clip: int = 0
    optimizer: int = 0
    overlap_reduce: bool = False


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Everything that a simulation needs beside the order of actions.

    `stages[s]` are the costs of stage s of one copy. `edge` holds between different ranks unless
    `edges[(source, destination)]` says otherwise. `send_host`, `recv_host` and `action_overhead`
    are the rank's own time for posting a send, posting a receive, and around each action.
    `overlap`: transfers run beside compute, else they hold both ranks. `channel`: what a transfer
    waits for beside its two ends (see CHANNELS).
    `speed[r]` multiplies the times of rank r's stages and its optimizer, each to the nearest tick
    (1 where absent).
    """

    stages: tuple[StageCosts, ...]
    unit: str = ""
    ticks_per_unit: int = 1
    edge: Edge = Edge()
    edges: Mapping[tuple[int, int], Edge] = field(default_factory=dict)
    send_host: int = 0
    recv_host: int = 0
    action_overhead: int = 0
    overlap: bool = True
    channel: str = "unlimited"
    tail: Tail = Tail()
    speed: Mapping[int, Fraction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.channel not in CHANNELS:
            raise InputError(f"channel is {self.channel!r}; it is one of {', '.join(CHANNELS)}")
        for rank, factor in self.speed.items():
            if factor <= 0:
                raise InputError(f"the speed factor of rank {rank} is {factor}; it is above 0")

    @property
    def in_bytes(self) -> bool:
        """Whether they say what stages hold."""
        return any(
            row.weight_bytes or row.held_until_input_bytes or row.held_until_weight_bytes
            for row in self.stages
        )

    @property
    def num_stages(self) -> int:
        return len(self.stages)

    def edge_between(self, source: int, destination: int) -> Edge:
        """The edge from one rank to another; nothing costs anything within a rank."""
        if source == destination:
            return Edge()
        return self.edges.get((source, destination), self.edge)

    def in_unit(self, ticks: int | Fraction) -> float:
        """Ticks as a float in the caller's unit."""
        return float(Fraction(ticks) / self.ticks_per_unit)

    @classmethod
    def uniform(
        cls,
        placement: Placement,
        *,
        forward: "Times" = 1,
        backward_input: "Times | None" = None,
        backward_weight: "Times | None" = None,
        backward: "Times | None" = None,
        overlapped: "Times | None" = None,
        p2p: float | Fraction = 0,
        unit: str = "",
    ) -> "Costs":
        """Costs from plain times of one microbatch; a float means its shortest text, 0.1 a tenth.

        A single number is the time of a whole rank and is divided evenly over its stages; a
        sequence of p numbers gives the ranks; one of `num_stages` numbers gives the stages.
        Missing backward halves are 1, unless `backward` alone is given.
        """
        halves_given = backward_input is not None or backward_weight is not None
        if backward is None or halves_given:
            backward_input = 1 if backward_input is None else backward_input
            backward_weight = 1 if backward_weight is None else backward_weight
        columns = {
            "forward": _per_stage(forward, placement, "forward"),
            "backward_input": _per_stage(backward_input, placement, "backward_input"),
            "backward_weight": _per_stage(backward_weight, placement, "backward_weight"),
            "backward": _per_stage(backward, placement, "backward"),
            "overlapped": _per_stage(overlapped, placement, "overlapped"),
        }
        hop = _time(p2p, "p2p")
        given = [t for column in columns.values() if column for t in column] + [hop]
        ticks = ticks_for(given)
        if max(given, default=0) * ticks >= MAX_TICKS:
            raise InputError(
                f"a time of {float(max(given)):g} is too long to add up exactly beside the "
                "shortest ones; use a coarser unit"
            )

        def duration(key: str, stage: int) -> Duration | None:
            column = columns[key]
            return None if column is None else Duration(int(column[stage] * ticks))

        stages = tuple(
            StageCosts(
                name=f"stage {s}",
                forward=duration("forward", s) or Duration(),
                backward_input=duration("backward_input", s),
                backward_weight=duration("backward_weight", s),
                backward=duration("backward", s),
                overlapped=duration("overlapped", s),
            )
            for s in range(placement.num_stages)
        )
        return cls(
            stages=stages, unit=unit, ticks_per_unit=ticks, edge=Edge(latency=int(hop * ticks))
        )


Times = float | Fraction | Sequence[float | Fraction]
"""One time for a whole rank, or one for each rank, or one for each stage."""


def ticks_for(times: Sequence[Fraction]) -> int:
    """The smallest number of ticks a unit that makes every time a whole number of ticks."""
    ticks = lcm(*(t.denominator for t in times)) if times else 1
    if ticks > MAX_TICKS_PER_UNIT:
        raise InputError(
            "the times have no common unit of at least 1e-12; give them with fewer decimal places"
        )
    return ticks


def _time(value: float | Fraction, what: str) -> Fraction:
    amount = quantity.number(value, what)
    if amount < 0:
        raise InputError(f"{what}: {value} is negative; a time is at least 0")
    return amount


def _per_stage(times: Times | None, placement: Placement, what: str) -> tuple[Fraction, ...] | None:
    if times is None:
        return None
    held = [len(placement.stages_of(r)) for r in range(placement.ranks)]
    stages, ranks = placement.num_stages, placement.ranks
    rank_of = placement.rank_of[:stages]
    # not every number is a float: NumPy's and Decimal are none
    if isinstance(times, str) or not isinstance(times, Iterable):
        one = _time(times, what)
        return tuple(one / (held[r] // placement.copies or 1) for r in rank_of)
    values = [_time(t, what) for t in times]
    if len(values) == stages:
        return tuple(values)
    if len(values) == ranks:
        return tuple(values[r] / (held[r] // placement.copies or 1) for r in rank_of)
    each = f"{ranks}, one a rank" + (f", or {stages}, one a stage" if stages != ranks else "")
    raise InputError(
        f"{what}: {len(values)} times for {ranks} ranks and {stages} stages; give one number, or "
        f"{each}"
    )
