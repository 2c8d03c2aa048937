"""Jitter: the step's distribution when every duration varies at random, by a seed.

A duration is multiplied by a lognormal factor of mean 1, so that the work stays what it is on
average; the step becomes longer all the same, because it waits for the slowest.
"""

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from unbubble.costs import Costs
from unbubble.errors import InputError, RunError
from unbubble.schedule.order import Schedule
from unbubble.simulate import kernel
from unbubble.simulate.program import Program
from unbubble.simulate.simulation import arranged
from unbubble.simulate.times import MAX_TOTAL_TICKS

if TYPE_CHECKING:
    import numpy as np

MAX_SPREAD = 10
FINER = 1_000_000
_BLOCK = 1 << 20
"""Random numbers that are drawn at once."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Relative standard deviations: of each action's time; of each rank's speed, one for all of its
    actions in a step; of each transfer's time."""

    action: float = 0.0
    rank: float = 0.0
    transfer: float = 0.0

    def __post_init__(self) -> None:
        for what in ("action", "rank", "transfer"):
            value = getattr(self, what)
            if not 0 <= value <= MAX_SPREAD:
                raise InputError(
                    f"the spread of {what} is {value}; it is a part of the time itself, "
                    f"0.05 for 5%, and at most {MAX_SPREAD}"
                )


@dataclass(frozen=True)
class Steps:
    """The steps of all draws, tail included, ascending; `planned`: without jitter. Ticks are finer
    than those of the costs, so that a small spread of a short time is not rounded away."""

    ticks: tuple[int, ...]
    planned: int
    ticks_per_unit: int

    def percentile(self, percent: float) -> int:
        """The smallest step that at least so many percent of the draws do not exceed."""
        if not 0 < percent <= 100:
            raise InputError(f"a percentile is above 0 and at most 100, not {percent}")
        return self.ticks[max(ceil(len(self.ticks) * percent / 100), 1) - 1]

    @property
    def mean(self) -> float:
        return sum(self.ticks) / len(self.ticks)


def jittered(
    schedule: Schedule,
    costs: Costs,
    spread: Spread,
    *,
    draws: int = 1000,
    seed: int = 0,
    receive: str = "early",
) -> Steps:
    """Simulate the schedule `draws` times; the same seed gives the same steps.

    Raises InputError as `simulate` does and for no draws, RunError where numpy is not installed.
    """
    if draws < 1:
        raise InputError(f"{draws} draws give no distribution; 1000 or more do")
    np = _numpy()
    program = Program(arranged(schedule, costs, receive), costs)
    known = program.order()
    whole = sum(program.duration) + sum(program.lag)
    scale = max(1, min(FINER, MAX_TOTAL_TICKS // (64 * max(whole, 1))))
    planned = (
        np.asarray(known.sorted(program.duration)) * scale,
        np.asarray(known.sorted(program.lag)) * scale,
    )
    rank_of = np.repeat(np.arange(schedule.ranks), np.diff(program.rank_start))
    rank_of = np.append(rank_of, np.full(program.nodes - len(rank_of), -1))
    rank_of = np.append(-1, rank_of[np.asarray(known.order)])
    moving = rank_of < 0
    durations, lags = planned[0].astype(float), planned[1].astype(float)
    random = np.random.Generator(np.random.PCG64(seed))
    actions = np.where(moving, spread.transfer, spread.action)
    longest = []
    ends = np.zeros(program.nodes + 1, dtype=np.int64)
    block = max(1, _BLOCK // len(durations))
    for first in range(0, draws, block):
        rows = min(block, draws - first)
        times = durations * _factors(random, actions, rows)
        if spread.rank:
            speeds = _factors(random, np.full(schedule.ranks, spread.rank), rows)
            times *= np.where(moving, 1.0, speeds[:, rank_of])
        if times.max() * len(durations) >= MAX_TOTAL_TICKS:
            raise InputError("the times are too long to add up exactly; use a coarser unit")
        ticks = np.rint(times).astype(np.int64)
        waits = None
        if lags.any() and spread.transfer:
            factors = _factors(random, np.full(len(lags), spread.transfer), rows)
            waits = np.rint(lags * factors).astype(np.int64)
        for row in range(rows):
            lag = planned[1] if waits is None else waits[row]
            kernel.run_known(known.before, known.needs, lag, ticks[row], ends)
            longest.append(int(ends.max()))
    return Steps(tuple(sorted(longest)), max(known.run(*planned)), costs.ticks_per_unit * scale)


def _factors(random: "np.random.Generator", spread: Any, rows: int) -> Any:
    """Lognormal factors of mean 1 and these relative standard deviations, a row a draw."""
    np = _numpy()
    sigma = np.sqrt(np.log1p(np.asarray(spread) ** 2))
    factors = random.standard_normal((rows, len(sigma)))
    factors *= sigma
    factors -= sigma**2 / 2
    return np.exp(factors, out=factors)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise RunError("random jitter needs numpy; pip install numpy") from None
    return numpy
