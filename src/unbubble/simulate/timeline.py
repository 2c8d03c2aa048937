"""Timeline: start and end of every action on every rank, simulated or measured.

A prediction and a measurement are the same type, so every question is asked once.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from unbubble.action import JOINED, Action, is_compute, overlap, unpack
from unbubble.quantity import percent
from unbubble.schedule.order import Schedule
from unbubble.simulate import kernel


class Event(NamedTuple):
    """One action as it happened; times in ticks."""

    action: Action
    start: int
    end: int


class Transfer(NamedTuple):
    """One tensor's way from the later of its two ends' posts to arrival; `action` is the send."""

    action: Action
    source: int
    destination: int
    start: int
    end: int


class Transfers(Sequence[Transfer]):
    """Transfers that are read from a simulation when they are first looked at."""

    def __init__(self, read: Callable[[], Iterable[Transfer]]):
        self._read = read

    @cached_property
    def _rows(self) -> tuple[Transfer, ...]:
        return tuple(self._read())

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Transfer]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return self._rows == (other._rows if isinstance(other, Transfers) else other)

    __hash__ = None  # type: ignore[assignment]  # it equals the tuple of its rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """`starts[r][i]` and `ends[r][i]` belong to `schedule.codes[r][i]`, in ticks.

    Both codes of an overlapped pair carry the pair's start and end, its parts stand at the second.
    `communication` and `overhead`, where known, are the parts of each duration that are not kernels
    at work, `recompute` the part of the kernels' time that repeats the forward (None of a
    simulation: nothing does). `begin` and `finish` bound the step, its tail included. A measured
    action's start is after the wait for its input.
    """

    schedule: Schedule
    starts: tuple["array[int]", ...]
    ends: tuple["array[int]", ...]
    begin: int
    finish: int
    communication: tuple["array[int]", ...] | None = None
    overhead: tuple["array[int]", ...] | None = None
    recompute: tuple["array[int]", ...] | None = None
    transfers: Sequence[Transfer] = ()
    unit: str = ""
    ticks_per_unit: int = 1
    measured: bool = False

    @property
    def ranks(self) -> int:
        return self.schedule.ranks

    def events(self, rank: int) -> Iterator[Event]:
        """A rank's actions in order, an overlapped pair as one."""
        forward: Action | None = None
        rows = zip(self.schedule.codes[rank], self.starts[rank], self.ends[rank], strict=True)
        for code, start, end in rows:
            action = unpack(code)
            if code & JOINED:
                forward = action
                continue
            if forward is not None:
                action, forward = overlap(forward, action), None
            yield Event(action, start, end)

    @property
    def length(self) -> int:
        """Finish − begin: the step with its tail, in ticks."""
        return self.finish - self.begin

    @cached_property
    def work(self) -> tuple[int, ...]:
        """Ticks of F, B, I, W and overlapped pairs on each rank."""
        rows = zip(self.schedule.codes, self.starts, self.ends, strict=True)
        return tuple(kernel.add_work(*row) for row in rows)

    @cached_property
    def makespan(self) -> int:
        """Last end − first start over all ranks, in ticks (the tail not included)."""
        bounds = [b for b in map(self._bounds, range(self.ranks)) if b is not None]
        return max(end for _, end in bounds) - min(row[0] for row in self.starts if row)

    @cached_property
    def span(self) -> int:
        """The longest (last end − first start of compute) of any single rank, in ticks."""
        return max(end - start for start, end in filter(None, map(self._bounds, range(self.ranks))))

    def _bounds(self, rank: int) -> tuple[int, int] | None:
        """Start of a rank's first and end of its last F, B, I or W."""
        codes = self.schedule.codes[rank]
        first = next((i for i, code in enumerate(codes) if is_compute(code)), None)
        if first is None:
            return None
        last = next(i for i in range(len(codes) - 1, -1, -1) if is_compute(codes[i]))
        return self.starts[rank][first], self.ends[rank][last]

    @property
    def idle(self) -> tuple[int, ...]:
        """Makespan − work of each rank, in ticks."""
        return tuple(self.makespan - work for work in self.work)

    @property
    def bubble_fraction(self) -> Fraction:
        """Idle / (ranks × makespan)."""
        return (
            Fraction(sum(self.idle), self.ranks * self.makespan) if self.makespan else Fraction(0)
        )

    @property
    def bubble_overhead(self) -> Fraction:
        """Idle / total work."""
        return Fraction(sum(self.idle), sum(self.work)) if sum(self.work) else Fraction(0)

    @property
    def utilization(self) -> Fraction:
        return 1 - self.bubble_fraction

    @property
    def bubble_fraction_span(self) -> Fraction:
        """1 − (work of the busiest rank) / span."""
        return 1 - Fraction(max(self.work), self.span) if self.span else Fraction(0)

    def in_unit(self, ticks: int | Fraction) -> float:
        """Ticks as a float in the unit of the costs."""
        return float(Fraction(ticks) / self.ticks_per_unit)

    def _repr_html_(self) -> str:
        from unbubble.report.notebook import timeline_html

        return timeline_html(self)

    def __repr__(self) -> str:
        kind = "measured" if self.measured else "simulated"
        return (
            f"<Timeline {kind}: {self.schedule.name or 'custom'}, {self.ranks} ranks, makespan "
            f"{self.in_unit(self.makespan):g} {self.unit}".rstrip()
            + f", bubble {percent(self.bubble_fraction)}>"
        )
