"""Observed: what one rank's trace says of one step, in nanoseconds of that rank's own clock.

Readers of formats produce it; `unbubble.trace.assembly` joins the ranks' into a Timeline.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from unbubble.action import Action


class Seen(NamedTuple):
    """One action as its rank saw it, the wait for its input not included; `communication` and
    `overhead` are the parts of end − start that are not compute.

    A collective at a step's start or end has the `name` of the operation, and the `group` that all
    ranks of the same call share; its start may still be the rank's own (assembly takes the wait
    for the last member out).
    """

    action: Action
    start: int
    end: int
    communication: int = 0
    overhead: int = 0
    name: str = ""
    group: str = ""


class HalfTransfer(NamedTuple):
    """One end of a transfer. `called`: the rank began to hand it over, `posted`: it had; `done`:
    it knew that it finished.

    `arrived`: `done` is the moment of arrival, because something visibly waited for it; else it
    had arrived at some earlier time.
    """

    action: Action
    called: int
    posted: int
    done: int
    arrived: bool


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
    unknown: tuple[str, ...] = ()
    replica: int | None = None
    """Which of the job's pipelines the rank belongs to, where the trace says so."""
    pipeline_group: tuple[int, ...] = field(default=())
    """Ranks of the pipeline that the trace names, in order of stages; empty: not named."""


@dataclass(frozen=True, kw_only=True)
class RankSteps:
    """Every step of one rank's trace. `rank` is None where neither file nor name tells."""

    rank: int | None
    source: str
    steps: tuple[Observed, ...]
    world_size: int | None = None
