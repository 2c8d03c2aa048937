"""unbubble validate: the published figures, recomputed."""

from fractions import Fraction
from typing import Any

import click

from unbubble.cli import options as shared
from unbubble.cli.output import number, print_json, print_table


@click.command("validate")
@click.argument("name", required=False)
@shared.json
def command(name: str | None, as_json: bool) -> int:
    """Recompute the published figures of NAME, or of all: theirs, ours, the error.

    The error of a bubble is the difference, that of any other figure is relative. Figures that a
    search reached are good if ours are not above them. Exit status 3 if any is beyond its
    tolerance, which is half of its last printed digit unless it says otherwise.
    """
    from unbubble.validate import figures

    rows: list[dict[str, Any]] = [
        {
            "publication": publication,
            "case": figure.case,
            "figure": figure.what,
            "theirs": Fraction(figure.theirs),
            "ours": figure.ours,
            "error": figure.error,
            "tolerance": figure.tolerance,
            "at_most": figure.at_most,
            "good": figure.good,
            "source": figure.source,
        }
        for publication, figure in figures(name)
    ]
    bad = [row for row in rows if not row["good"]]
    mean = sum((abs(row["error"]) for row in rows), Fraction(0)) / len(rows)
    if as_json:
        print_json({"rows": rows, "mean_absolute_error": mean, "bad": len(bad), "unit": ""})
    else:
        print_table(
            [
                {
                    "publication": row["publication"],
                    "case": row["case"],
                    "figure": row["figure"],
                    "theirs": f"{'≤ ' if row['at_most'] else ''}{number(row['theirs'])}",
                    "ours": number(row["ours"]),
                    "error": f"{round(float(row['error']), 4) or 0:+.4f}",
                    "": "" if row["good"] else "beyond its tolerance",
                }
                for row in rows
            ]
        )
        click.echo(
            f"{len(rows)} figures, mean absolute error {float(mean):.5f}, "
            f"{len(bad) or 'none'} beyond tolerance"
        )
    return 3 if bad else 0
