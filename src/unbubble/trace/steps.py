"""Steps: which steps all ranks of a trace have, and which of them is looked at."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median_low

from unbubble.errors import InputError, some
from unbubble.trace.observed import Deferred, Observed, RankSteps


class Steps:
    """The steps that all ranks have, by number; where some carry none they are numbered from 0.

    Raises InputError where a rank holds no step and where the ranks have none in common.
    """

    def __init__(self, ranks: Sequence[RankSteps]):
        self.ranks = ranks
        self.rows: list[dict[int, tuple[int, int]]] = []
        """Place and length of every step, by rank."""
        for rank in ranks:
            if not rank.steps:
                raise InputError(f"{rank.source}: it holds no step")
            self.rows.append({n: (i, t) for i, (n, t) in enumerate(rank.windows) if n is not None})
        by_order = [r for row, r in zip(self.rows, ranks, strict=True) if len(row) < len(r.steps)]
        if by_order and len({len(rank.steps) for rank in ranks}) > 1:
            for rank in by_order:
                if all(n is not None for n, _ in rank.windows):
                    raise InputError(f"{rank.source}: it has two steps of the same number")
        if by_order:
            self.rows = [dict(enumerate((i, t) for i, (_, t) in enumerate(r.windows)))
                         for r in ranks]  # fmt: skip
        self.note = ("steps, from their order",) if 0 < len(by_order) < len(ranks) else ()
        first = self.rows[0]
        self.numbers = [n for n in first if all(n in row for row in self.rows)]
        if not self.numbers:
            i = next((i for i, row in enumerate(self.rows) if not row.keys() & first.keys()), 1)
            raise InputError(
                f"the ranks have no step in common: {ranks[0].source} has {some(first)}, "
                f"{ranks[i].source} has {some(self.rows[i])}"
            )

    def median(self) -> int:
        """The step of median length; of two in the middle the shorter: a first step may compile.
        Steps in which nothing ran, as a last one that was cut off, do not count, nor do
        evaluations."""
        numbers = [n for n in self.numbers if self._worked(n)] or self.numbers
        lengths = [max(row[n][1] for row in self.rows) for n in numbers]
        return numbers[lengths.index(median_low(lengths))]

    def _worked(self, step: int) -> bool:
        """Whether any rank learned in a step, where that is known without making it."""
        return any(
            isinstance(rank.steps, Deferred) or _learned(rank.steps[row[step][0]])
            for rank, row in zip(self.ranks, self.rows, strict=True)
        )

    def of(self, step: int) -> list[Observed]:
        """Every rank's observation of a step."""
        if not all(step in row for row in self.rows):
            raise InputError(f"--step {step}: the trace has the steps {some(self.numbers)}")
        found = [r.steps[row[step][0]] for r, row in zip(self.ranks, self.rows, strict=True)]
        if self.note:
            return [replace(one, recovered=one.recovered + self.note) for one in found]
        return found


def _learned(one: Observed) -> bool:
    return one.learned and one.busy.compute > 0
