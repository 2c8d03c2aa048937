"""Outcome: a measured run beside its prediction, in the figures that commands print."""

from dataclasses import dataclass
from functools import cached_property
from statistics import median, median_low
from typing import Any

from unbubble.attribution import Attribution, RankClasses, attribute
from unbubble.classes import HEADS, why_below_zero
from unbubble.quantity import percent
from unbubble.runtime.gradients import GRADIENT_TOLERANCE, Gradients
from unbubble.runtime.measured import Measured
from unbubble.simulate import Timeline
from unbubble.sweep.rows import NOISY
from unbubble.terminal import table, wrapped


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was predicted and what came; `typical` is the measured step of the median time."""

    predicted: Timeline
    measured: Measured

    @property
    def step_s(self) -> float:
        """The median step time."""
        return median(self.measured.step_times_s)

    @property
    def predicted_s(self) -> float:
        return self.predicted.in_unit(self.predicted.makespan)

    @property
    def error(self) -> float:
        """Predicted / measured − 1."""
        return self.predicted_s / self.step_s - 1

    @property
    def noise(self) -> float:
        """How much the odd and the even steps differ: what the machine adds on its own."""
        times = self.measured.step_times_s
        return abs(median(times[::2]) / median(times[1::2]) - 1) if len(times) > 1 else 0.0

    @property
    def typical(self) -> Timeline:
        """The step of median makespan, of two in the middle the shorter: the one that
        `unbubble trace` shows."""
        return self.measured.steps[self.typical_number]

    @property
    def typical_number(self) -> int:
        """Its number in the recording."""
        lengths = [step.makespan for step in self.measured.steps]
        return lengths.index(median_low(lengths))

    @cached_property
    def attribution(self) -> Attribution:
        """The classes of the typical step."""
        return attribute(self.typical)

    @cached_property
    def predicted_attribution(self) -> Attribution:
        return attribute(self.predicted)

    @property
    def gradients(self) -> dict[str, Gradients]:
        """The comparison with one process by the schedule's name; empty where there was none."""
        found = self.measured.gradients
        return {self.typical.schedule.name or "custom": found} if found else {}

    def document(self) -> dict[str, Any]:
        """The JSON answer of `unbubble run`; times in seconds."""
        schedule, gradients = self.typical.schedule, self.measured.gradients
        return {
            "schedule": schedule.name or "custom",
            "ranks": schedule.ranks,
            "microbatches": schedule.microbatches,
            "num_stages": schedule.num_stages,
            "unit": "s",
            "step_times_s": list(self.measured.step_times_s),
            "step_s": self.step_s,
            "predicted_s": self.predicted_s,
            "error": self.error,
            "noise": self.noise,
            "gradients": gradients
            and {
                "largest_difference": gradients.largest_difference,
                "parameter": gradients.parameter,
                "parameters": gradients.parameters,
                "tolerance": GRADIENT_TOLERANCE,
                "equal": gradients.equal,
                "apart": gradients.apart,
                "of_model": gradients.of_model,
                "summed": gradients.summed,
            },
            "attribution": _classes(self.attribution),
            "predicted_attribution": _classes(self.predicted_attribution),
            "clock_uncertainty_s": self.measured.clock_uncertainty_s,
            "optimizer_s": list(self.measured.optimizer_s),
            "losses": list(self.measured.losses),
        }

    def lines(self) -> list[str]:
        """The same for people; what is predicted in no seconds is left out."""
        times, gradients = self.measured.step_times_s, self.measured.gradients
        in_seconds = self.predicted.unit == "s"
        beside = (
            f"; predicted {1e3 * self.predicted_s:.1f} ms, {percent(self.error, sign=True)}"
            if in_seconds
            else ""
        )
        found = [
            f"step {1e3 * self.step_s:.1f} ms, the median of {len(times)} "
            f"({1e3 * min(times):.1f} to {1e3 * max(times):.1f}){beside}",
            f"optimizer {1e3 * median(self.measured.optimizer_s):.1f} ms, not in the step",
        ]
        if self.noise > NOISY:
            found.append(
                f"the odd and the even steps differ by {percent(self.noise)}: the machine is "
                "busy with something else, and the figures are no better than that"
            )
        if (uncertainty := self.measured.clock_uncertainty_s) != 0:
            by = "an unknown time" if uncertainty is None else f"up to {1e3 * uncertainty:.2f} ms"
            found.append(f"the clocks of the ranks may differ by {by}; so may the classes")
        if gradients is not None:
            found.append(
                f"gradients of {gradients.parameters} parameters after two accumulated steps "
                f"differ from one process by at most {gradients.shown} "
                f"({gradients.parameter}); {GRADIENT_TOLERANCE:g} is allowed"
            )
        length = self.typical.in_unit(self.typical.makespan)
        if f"{1e3 * length:.1f}" != f"{1e3 * self.step_s:.1f}":
            found.append(
                f"the measured classes are those of step {self.typical_number}, "
                f"{1e3 * length:.1f} ms, of the two in the middle the shorter"
            )
        classes = class_lines(self.attribution, self.predicted_attribution if in_seconds else None)
        return [*map(wrapped, found), "", *classes]


def class_lines(measured: Attribution, predicted: Attribution | None) -> list[str]:
    """The five classes of every rank in ms, the predicted ones in the line below."""
    rows = []
    for rank, ours in enumerate(measured.ranks):
        rows.append({"ms": f"rank {ours.rank} measured"} | _cells(measured, ours))
        if predicted is not None:
            theirs = _cells(predicted, predicted.ranks[rank])
            rows.append({"ms": "       predicted"} | theirs)
    return [*table(rows), *map(wrapped, why_below_zero(rows))]


def _cells(attribution: Attribution, row: RankClasses) -> dict[str, str]:
    return {
        head: f"{1e3 * attribution.in_unit(getattr(row, name)):z.1f}"
        for name, head in {**HEADS, "total": "total"}.items()
    }


def _classes(attribution: Attribution) -> dict[str, Any]:
    return {
        "ranks": [
            {"rank": row.rank}
            | {f"{name}_s": time for name, time in attribution.row_in_unit(row).items()}
            for row in attribution.ranks
        ],
        "gains": {
            f"{key}_s": attribution.in_unit(value)
            for key, value in attribution.gains._asdict().items()
        },
    }
