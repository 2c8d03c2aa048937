"""What a sweep found, for programs and for people."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from unbubble.cli.output import Clock, number, print_table, say
from unbubble.errors import InputError
from unbubble.quantity import percent, shown_size
from unbubble.sweep import Row, Verdict, verdict


@dataclass(kw_only=True)
class Swept:
    """Rows by v as they come; `ended` says what ended the sweep before its time."""

    pays: Fraction
    memory_bytes: int | None = None
    measured: bool = False
    schedule: str = ""
    ranks: int | None = None
    skipped: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    ended: str = ""
    found: list[tuple[list[Row], tuple[int, ...]]] = field(default_factory=list)

    def about(self, schedule: str, ranks: int | None) -> None:
        self.schedule, self.ranks = schedule, ranks

    def take(self, rows: Iterable[Row], layers_per_stage: tuple[int, ...] = ()) -> None:
        """The rows of one v; those that came before an error stay."""
        kept: list[Row] = []
        for row in rows:
            if not kept:
                self.found.append((kept, layers_per_stage))
            kept.append(row)

    @contextmanager
    def one_of(self, chosen: Sequence[int | None], virtual: int | None) -> Iterator[None]:
        """Around one v of those chosen: where it is refused, it is left out and the others go on.

        The only one is refused with its own words, and so is the last where none went.
        """
        try:
            yield
        except InputError as error:
            if len(chosen) == 1:
                raise
            self.skipped.append({"virtual_stages": virtual, "reason": str(error)})
            if len(self.skipped) == len(chosen):
                raise InputError(f"no -v can be swept: {self.skipped[0]['reason']}") from error

    @property
    def rows(self) -> list[Row]:
        return [row for rows, _ in self.found for row in rows]

    def verdicts(self) -> list[tuple[list[Row], Verdict]]:
        return [(rows, verdict(rows, self.pays)) for rows, _ in self.found]

    def document(self) -> dict[str, Any]:
        """The JSON answer."""
        verdicts = self.verdicts()
        best, words = max(verdicts, key=lambda pair: max(map(_speed, pair[0])))
        return {
            "schedule": self.schedule,
            "ranks": self.ranks,
            "rows": [
                _document(row) | ({"layers_per_stage": list(split)} if split else {})
                for rows, split in self.found
                for row in rows
            ],
            "verdict": words.text,
            "best_virtual_stages": best[0].virtual,
            "stops_at": words.stops_at,
            "limited_by": words.limited_by or None,
            "classes": words.classes or None,
            "verdicts": [
                {"virtual_stages": rows[0].virtual, "verdict": found.text,
                 "stops_at": found.stops_at, "limited_by": found.limited_by or None}
                for rows, found in verdicts
            ],
            "skipped": self.skipped,
            "left_out": self.left_out,
            "ended": self.ended or None,
            "unit": best[0].timeline.unit,
        }  # fmt: skip

    def print(self) -> None:
        """A table, and the verdict for every v."""
        real = any(row.taken for row in self.rows)
        if real:
            say(
                f"{self.schedule}, {self.ranks} ranks; predicted / measured, steps without the "
                "optimizer"
            )
        clock = Clock.suiting(max(row.step for row in self.rows), self.rows[0].timeline.unit)
        limited = self.memory_bytes is not None
        print_table(
            [
                ({"p": str(row.ranks)} if self.ranks is None else {})
                | (_run_cells(row) if real else _cells(row, clock, self.measured, limited))
                for row in self.rows
            ]
        )
        for each in self.skipped:
            say(f"v = {each['virtual_stages']} is left out: {each['reason']}")
        for rows, found in self.verdicts():
            text = f"v = {rows[0].virtual}: {found.text}"
            say(_clauses(text) if real else text)
        if self.ended:
            say(f"ended early ({self.ended}); the rows are those that were finished")


def _clauses(text: str) -> str:
    """Each clause of a verdict on a line of its own."""
    return "\n  ".join(text.split("; "))


def _speed(row: Row) -> Fraction:
    """What the best v is chosen by: measured microbatches a second where they were run."""
    if row.taken is not None and row.observed is not None:
        return row.observed
    return row.throughput if row.fits else Fraction(0)


def _document(row: Row) -> dict[str, Any]:
    taken = row.taken
    found = {
        "virtual_stages": row.virtual,
        "microbatches": row.microbatches,
        "ranks": row.ranks,
        "step": row.step,
        "bubble_fraction": row.bubble_fraction,
        "throughput": row.throughput,
        "gain": row.gain,
        "observed": row.observed,
        "observed_gain": row.observed_gain,
        "peak_bytes": row.peak_bytes,
        "fits": row.fits,
    }
    if taken is not None:
        found |= {
            "observed_step": taken.step_s,
            "observed_bubble_fraction": taken.typical.bubble_fraction,
            "error": float(row.step) / taken.step_s - 1,
            "noise": taken.noise,
            "drift": row.drift,
            "classes": row.classes,
            "observed_classes": taken.classes,
        }
    return found


def _cells(row: Row, clock: Clock, measured: bool, limited: bool) -> dict[str, str]:
    unit = row.timeline.unit
    cells = {
        "v": str(row.virtual),
        "m": str(row.microbatches),
        clock.head("step"): clock.number(row.step),
        "bubble": percent(row.bubble_fraction, 2),
        f"microbatches / {unit or 'unit'}": number(row.throughput),
        "gain": _times(row.gain),
    }
    if limited:
        cells["fullest rank"] = shown_size(row.peak_bytes or 0) + ("" if row.fits else ", too much")
    return cells | ({"observed gain": _times(row.observed_gain)} if measured else {})


def _run_cells(row: Row) -> dict[str, str]:
    """Predicted and measured beside each other, in 80 columns."""
    taken, observed = row.taken, row.observed
    unit = row.timeline.unit
    step, scale = (" ms", 1000) if unit == "s" else (f" {unit}".rstrip(), 1)
    return {
        "v": str(row.virtual),
        "m": str(row.microbatches),
        f"step{step}": _pair(_short(scale * row.step), taken and _short(1000 * taken.step_s)),
        "microbatches / s": _pair(_short(row.throughput), observed and _short(observed)),
        "gain": _pair(_times(row.gain), taken and _times(row.observed_gain)),
        "bubble": _pair(
            percent(row.bubble_fraction),
            taken and percent(taken.typical.bubble_fraction),
        ),
    }


def _pair(predicted: str, measured: Any) -> str:
    return f"{predicted} / {measured or '-'}"


def _short(value: Fraction | float) -> str:
    return f"{float(value):.4g}"


def _times(gain: Fraction | None) -> str:
    return "-" if gain is None else f"× {float(gain):.3f}"
