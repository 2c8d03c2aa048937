"""Observed: what one rank's trace says of one step, in nanoseconds of that rank's own clock.

Readers of formats produce it; `unbubble.trace.assembly` joins the ranks' into a Timeline.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from unbubble.action import Action

NOTICEABLE_NS = 50_000
"""A wait longer than this blocked its rank; shorter ones are the call itself."""
NS = 10**9
"""In a second."""
FOREVER_NS = 1 << 62


class About(StrEnum):
    """What a doubt is about."""

    ACTIONS = "actions"
    CLOCKS = "clocks"
    EVENTS = "events"
    KERNELS = "kernels"
    ORDER = "order"
    RECOMPUTE = "recompute"
    REPLICAS = "replicas"
    STAGES = "stages"
    STEPS = "steps"
    TAIL = "tail"
    TRANSFERS = "transfers"


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something that the traces cannot tell, or that cannot be as they tell it."""

    about: About
    reason: str

    def __str__(self) -> str:
        return f"{self.about}: {self.reason}"


class Seen(NamedTuple):
    """One action as its rank saw it, the wait for its input not included; `communication` and
    `overhead` are the parts of end − start that are not compute, `recompute` the part of the
    compute in which a forward runs again.

    A collective at a step's start or end has the `name` of the operation, and the `group` that all
    ranks of the same call share, so many `members` where that is known; its start may still be the
    rank's own (the wait for the last member is taken out later).
    """

    action: Action
    start: int
    end: int
    communication: int = 0
    overhead: int = 0
    name: str = ""
    group: str = ""
    members: int = 0
    recompute: int = 0


class HalfTransfer(NamedTuple):
    """One end of a transfer. `called`: the rank began to hand it over, `posted`: it had; `done`:
    it knew that it finished.

    What used it began at `used` and counts it as there by then. `arrived`: the earlier of `done`
    and `used` is the moment of arrival, because something visibly waited for it; else it had
    arrived at some earlier time.
    """

    action: Action
    called: int
    posted: int
    done: int
    arrived: bool
    used: int = FOREVER_NS


class Busy(NamedTuple):
    """What any trace of a device tells: kernels at work, communication that they do not hide, and
    neither; ns that add up to the window."""

    compute: int
    communication: int
    idle: int

    @property
    def total(self) -> int:
        return self.compute + self.communication + self.idle


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One rank's step: what came before the pipeline (`head`), its actions, what came after
    (`tail`). Actions without a stage in their names have stage −1, and their transfers
    are counted in `sends` and `receives` in the order of posting."""

    rank: int
    source: str
    step: int | None
    begin: int
    finish: int
    busy: Busy
    host: str = ""
    head: tuple[Seen, ...] = ()
    actions: tuple[Seen, ...] = ()
    tail: tuple[Seen, ...] = ()
    halves: tuple[HalfTransfer, ...] = ()
    sends: tuple[HalfTransfer, ...] = ()
    receives: tuple[HalfTransfer, ...] = ()
    recovered: tuple[str, ...] = ()
    unknown: tuple[Doubt, ...] = ()
    recompute_told: bool = False
    """Whether the actions' `recompute` is what the trace tells, and not only absent from it."""
    learned: bool = True
    """Whether any backward ran, where the trace tells; an evaluation has none."""
    renewed: bool = False
    """Whether an optimizer ran between actions when no microbatch was under way, as between
    steps."""
    replica: int | None = None
    """Which of the job's pipelines the rank belongs to, where the trace says so."""
    pipeline_group: tuple[int, ...] = field(default=())
    """Ranks of the pipeline that the trace names, in order of stages; empty: not named."""


class Deferred(Sequence[Observed]):
    """Steps that are made whenever they are looked at, since a long job's are too many to hold.

    `windows`: the number and the length in ns of each.
    """

    def __init__(
        self,
        windows: Sequence[tuple[int | None, int]],
        makers: Sequence[Callable[[], Observed]],
    ):
        self.windows = windows
        self._makers = makers

    def __len__(self) -> int:
        return len(self._makers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Deferred(self.windows[index], self._makers[index])
        return self._makers[index]()

    def followed_by(self, other: "Deferred") -> "Deferred":
        """These and those; of two with the same number the later one."""
        windows = [*self.windows, *other.windows]
        makers = [*self._makers, *other._makers]
        last = sorted({number: i for i, (number, _) in enumerate(windows)}.values())
        return Deferred([windows[i] for i in last], [makers[i] for i in last])


@dataclass(frozen=True, kw_only=True)
class RankSteps:
    """Every step of one rank's trace. `rank` is None where neither file nor name tells.

    Files with the same rank and `run` hold parts of one trace. `notes`: what could not be read.
    """

    rank: int | None
    source: str
    steps: tuple[Observed, ...] | Deferred
    world_size: int | None = None
    run: str = ""
    notes: tuple[str, ...] = ()

    def followed_by(self, other: "RankSteps") -> "RankSteps":
        """The same rank's trace and what a later file has of it."""
        assert isinstance(self.steps, Deferred)
        assert isinstance(other.steps, Deferred)
        return replace(self, steps=self.steps.followed_by(other.steps))

    @property
    def windows(self) -> Sequence[tuple[int | None, int]]:
        """The number and the length in ns of every step."""
        if isinstance(self.steps, Deferred):
            return self.steps.windows
        return [(s.step, s.finish - s.begin) for s in self.steps]
