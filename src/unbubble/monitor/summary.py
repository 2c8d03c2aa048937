"""Summary: one step of one pipeline in figures: the bubble, the five classes, what idling costs."""

from fractions import Fraction
from typing import Any

from unbubble.attribution import attribute
from unbubble.errors import InputError
from unbubble.monitor.follower import Ready
from unbubble.trace.findings import classes, fractions
from unbubble.trace.observed import NS

SECONDS_AN_HOUR = 3600


def summary(ready: Ready, price: Fraction | None = None) -> dict[str, Any]:
    """The figures as JSON values, times in seconds, fractions between 0 and 1 and means over the
    ranks. `price`: of one device for an hour, each rank being one; `idle_cost` is in its currency.

    What cannot be told is None, and `unknown` says why: also of a record that contradicts itself,
    since the next steps are none the worse.
    """
    try:
        pipeline, unknown = ready.pipeline(), []
    except InputError as error:
        pipeline, unknown = None, [str(error)]
    answer: dict[str, Any] = {
        "run": ready.run,
        "step": ready.step,
        "begun_s": ready.begun_s,
        "pipeline_ranks": list(ready.ranks),
        "step_s": None,
        "bubble_fraction": None,
        "fractions": None,
        "idle_s": None,
        "idle_cost": None,
        "slowest_rank": None,
        "clock_uncertainty_s": None,
        "ranks": [],
        "unknown": unknown if pipeline is None else list(pipeline.unknown),
        "unit": "s",
    }
    timeline = pipeline.timeline if pipeline else None
    if pipeline is None or timeline is None or pipeline.clocks is None:
        return answer
    uncertainty = pipeline.clocks.uncertainty
    rows = classes(pipeline, attribute(timeline))
    idle = sum(row["idle_s"] for row in rows)
    return answer | {
        "step_s": rows[0]["total_s"],
        "bubble_fraction": float(timeline.bubble_fraction),
        "fractions": fractions(rows),
        "idle_s": idle,
        "idle_cost": None if price is None else idle / SECONDS_AN_HOUR * float(price),
        "slowest_rank": max(rows, key=lambda row: row["compute_s"])["rank"],
        "clock_uncertainty_s": None if uncertainty is None else uncertainty / NS,
        "ranks": rows,
    }
