"""Further questions about a simulated step: what a change would win, what jitter does to it."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from unbubble.cli.output import Clock, print_table
from unbubble.costs import Costs
from unbubble.quantity import percent
from unbubble.schedule import Schedule

PERCENTILES = (50, 95, 99)


def what_if_rows(
    order: Schedule, costs: Costs, regenerate: Callable[[int], Schedule] | None
) -> list[dict[str, Any]]:
    """Every change with the step that it leads to and the part of the time that it wins."""
    from unbubble.simulate.whatif import what_ifs

    return [row._asdict() for row in what_ifs(order, costs, regenerate=regenerate)]


def jitter_figures(
    order: Schedule, costs: Costs, spread: Fraction, draws: int, seed: int
) -> dict[str, Any]:
    """The step's distribution over random draws, in the unit of the costs."""
    from unbubble.simulate.jitter import Spread, jittered

    steps = jittered(order, costs, Spread(action=float(spread)), draws=draws, seed=seed)
    ticks = steps.ticks_per_unit
    return {
        "spread": spread,
        "draws": draws,
        "seed": seed,
        "planned": Fraction(steps.planned, ticks),
        "mean": steps.mean / ticks,
        **{f"p{q}": steps.percentile(q) / ticks for q in PERCENTILES},
    }


def print_what_ifs(rows: list[dict[str, Any]], clock: Clock) -> None:
    """The changes as a table, the largest gain first."""
    print_table(
        [
            {
                "what if": row["change"],
                clock.head("step"): clock.number(row["step"]),
                "wins": percent(row["gain"], 2),
            }
            for row in rows
        ]
    )


def jitter_line(found: dict[str, Any], clock: Clock) -> str:
    """The distribution in one line."""
    shown = ", ".join(f"P{q} {clock.number(found[f'p{q}'])}" for q in PERCENTILES)
    return (
        f"with a spread of {percent(found['spread'], 2)} in each action, {found['draws']} draws: "
        f"{shown} {clock.unit}".rstrip()
    )
