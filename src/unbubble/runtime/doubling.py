"""Doubling: a sweep for real. Each launch runs two numbers of microbatches, their steps in turn.

    launch 1   m = 2 and 4      launch 2   m = 4 and 8      launch 3   m = 8 and 16  …

A gain is measured within one launch, so that a machine that drifts from launch to launch does not
look like one that gains or loses with m. And the sweep ends with the first doubling that does not
pay, without having run, or held in memory, all the larger ones. Before it ends against the
prediction the launch is made again, and of three gains the middle one counts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

from unbubble.costs import Costs
from unbubble.plan import Plan
from unbubble.prediction import predict
from unbubble.runtime.launch import Progress
from unbubble.runtime.measured import Measured
from unbubble.runtime.outcome import Outcome
from unbubble.runtime.replica import setup
from unbubble.runtime.run import Setup, run
from unbubble.simulate import Timeline
from unbubble.sweep import PAYS, Row, Taken, predicted_row


class Runner(Protocol):
    """What takes the steps: `unbubble.run`, or a stand-in for it."""

    def __call__(
        self,
        setups: Sequence[Setup],
        target: str,
        *,
        steps: int,
        warmup: int,
        verify: bool,
        timeout_s: float,
        on_progress: Progress,
    ) -> list[Measured]: ...


@dataclass(frozen=True, kw_only=True)
class Steps:
    """How the steps of a row are taken."""

    target: str
    steps: int = 5
    warmup: int = 2
    timeout_s: float = 120.0
    run: Runner = run


Pair = list[tuple[Plan, Row]]


def sweep_run(
    plans: Iterable[Plan],
    how: Steps,
    *,
    pays: Fraction = PAYS,
    memory_bytes: int | None = None,
    on_progress: Progress = lambda line: None,
) -> Iterator[Row]:
    """A row for each plan as soon as it is measured, until a doubling no longer pays or is
    predicted not to fit into the memory; that last one is then only predicted.

    The plans differ in m alone. Steps are measured without the optimizer. Raises what
    `unbubble.run` does; the rows before are good.
    """
    pair: Pair = []
    for plan in plans:
        before = pair[-1][1] if pair else None
        row = predicted_row(
            plan.schedule,
            plan.costs,
            before,
            simulated=predict,
            step=_makespan,
            memory_bytes=memory_bytes,
        )
        if not row.fits:
            yield from _alone(pair, how, on_progress)
            yield row
            return
        pair = [*pair[-1:], (plan, row)]
        if before is None:
            continue
        first, row = _doubled(pair, how, pays, on_progress)
        if before.taken is None:
            yield first
        yield row
        if _gain([row]) < 1 + pays:
            return
        pair = [(plan, row)]
    yield from _alone(pair, how, on_progress)


def _alone(pair: Pair, how: Steps, on_progress: Progress) -> Iterator[Row]:
    """The only row, where no other came to be run with it."""
    for plan, row in pair:
        if row.taken is None:
            [measured] = _launch([(plan, row)], how, on_progress)
            yield _with(row, measured)


def _doubled(pair: Pair, how: Steps, pays: Fraction, on_progress: Progress) -> list[Row]:
    """Both rows as measured in one launch, the second with its gain."""
    predicted = pair[1][1].gain or 1
    tries = [_gained(pair, _launch(pair, how, on_progress))]
    while len(tries) < 3 and _gain(tries[0]) < 1 + pays <= predicted:
        if len(tries) == 2 and _gain(tries[1]) < 1 + pays:
            break
        tries.append(_gained(pair, _launch(pair, how, on_progress)))
    return sorted(tries, key=_gain)[len(tries) // 2]


def _gain(rows: Sequence[Row]) -> Fraction:
    return rows[-1].observed_gain or Fraction(1)


def _launch(pair: Pair, how: Steps, on_progress: Progress) -> list[Measured]:
    shown = " and ".join(str(row.microbatches) for _, row in pair)
    return how.run(
        [setup(plan) for plan, _ in pair],
        how.target,
        steps=how.steps,
        warmup=how.warmup,
        verify=False,
        timeout_s=how.timeout_s,
        on_progress=lambda line: on_progress(f"m = {shown}: {line}"),
    )


def _gained(pair: Pair, ran: Sequence[Measured]) -> list[Row]:
    first, second = (_with(row, each) for (_, row), each in zip(pair, ran, strict=True))
    before = pair[0][1].observed
    assert first.observed is not None
    assert second.observed is not None
    gain = second.observed / first.observed
    drift = float(first.observed / before - 1) if before is not None else 0.0
    return [first, replace(second, observed_gain=gain, drift=drift)]


def _with(row: Row, measured: Measured) -> Row:
    outcome = Outcome(predicted=row.timeline, measured=measured)
    taken = Taken(step_s=outcome.step_s, typical=outcome.typical, noise=outcome.noise)
    return replace(row, observed=row.microbatches / Fraction(outcome.step_s), taken=taken)


def _makespan(timeline: Timeline, costs: Costs) -> Fraction:
    """What a run measures of a step: its tail is not in it."""
    return Fraction(timeline.makespan)
