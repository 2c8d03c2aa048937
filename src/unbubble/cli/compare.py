"""unbubble compare: the same costs under many schedules."""

from typing import Any

import click

from unbubble.cli import options as shared
from unbubble.cli.output import Clock, number, print_json, print_table, say
from unbubble.errors import InputError
from unbubble.quantity import percent, shown_size

DEFAULT = "gpipe,1f1b,interleaved-1f1b,zb-h1,zb-h2,zb-v"


@click.command("compare")
@click.option("--schedules", default=DEFAULT, show_default=True, metavar="A,B,…",
              help="Schedules by name.")  # fmt: skip
@shared.sizes
@shared.times
@shared.costs
@shared.json
def command(
    schedules: str,
    ranks: int | None,
    microbatches: int | None,
    virtual: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Simulate the same costs under many schedules.

    The fastest is that of the shortest step, of several the one that holds the least. -v goes to
    the schedules that take it. A schedule that the sizes or the costs do not allow is
    listed with the reason.
    """
    from unbubble.cli.figures import figures
    from unbubble.families import family
    from unbubble.simulate import simulate

    p = shared.count(ranks, "p", "ranks")
    m = shared.count(microbatches, "m", "microbatches", 8)
    if virtual is not None:
        shared.count(virtual, "v", "virtual stages")
    costs = shared.CostOptions(options)
    entries = [family(name) for name in schedules.split(",")]
    rows: list[dict[str, Any]] = []
    for entry in entries:
        v = virtual if virtual is not None and entry.takes(virtual) else None
        try:
            order = entry.fitted(p, m, v, costs_of=costs.costs_of)
            stages = costs.of(order)
            row = figures(simulate(order, stages.costs), stages.costs)
            row["layers_per_stage"] = list(stages.layers_per_stage) or None
        except InputError as error:
            row = {"schedule": entry.name, "refused": str(error)}
        rows.append(row)
    made = [row for row in rows if "refused" not in row]
    if not made:
        raise InputError("; ".join(dict.fromkeys(row["refused"] for row in rows)))
    best = min(made, key=lambda row: (row["step"], max(row["peak_activations"])))
    if as_json:
        print_json({"rows": rows, "best": best["schedule"], "unit": best["unit"]})
        return
    clock = Clock.suiting(max(row["step"] for row in made), best["unit"])
    tail = any(row["step"] > row["makespan"] for row in made)
    print_table(
        [
            {
                "schedule": row["schedule"],
                "stages": str(row["num_stages"]),
                clock.head("makespan"): clock.number(row["makespan"]),
                **({clock.head("step"): clock.number(row["step"])} if tail else {}),
                "bubble": percent(row["bubble_fraction"], 2),
                clock.head("span"): clock.number(row["span"]),
                "by span": percent(row["bubble_fraction_span"], 2),
                "in flight": number(max(row["peak_activations"])),
                **(
                    {"with weights": shown_size(max(row["peak_bytes"]))}
                    if row["peak_bytes"]
                    else {}
                ),
            }
            for row in made
        ]
    )
    say(f"\nfastest: {best['schedule']}")
    for row in rows:
        for said in [row["refused"]] if "refused" in row else row["notes"]:
            # most refusals name the schedule themselves
            say(said if said.startswith(f"{row['schedule']} ") else f"{row['schedule']}: {said}")
