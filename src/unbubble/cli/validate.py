"""unbubble validate: the published figures, recomputed."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import Any

import click

from unbubble.cli import options as shared
from unbubble.cli.output import number, print_json, print_table, say

Row = dict[str, Any]


@click.command("validate")
@click.argument("name", required=False)
@shared.json
def command(name: str | None, as_json: bool) -> int:
    """Recompute the published figures of NAME: theirs, ours, the error; or sum up all of them.

    The error of a bubble is the difference, that of any other figure is relative. Figures that a
    search reached are good if ours are not above them. Exit status 3 if any is beyond its
    tolerance, which is half of its last printed digit unless it says otherwise.
    """
    from unbubble.validate import figures

    rows: list[Row] = [
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
    mean = _mean_error(rows)
    if as_json:
        print_json({"rows": rows, "mean_absolute_error": mean, "bad": len(bad), "unit": ""})
    else:
        print_table(list(map(_line, rows)) if name else _publications(rows))
        if bad and not name:
            click.echo()
            print_table([{"publication": row["publication"], **_line(row)} for row in bad])
        say(
            f"{len(rows)} figures, mean absolute error {float(mean):.5f}, "
            f"{len(bad) or 'none'} beyond tolerance"
        )
        if not name:
            say(f"each figure: unbubble validate {rows[0]['publication']}, or --json")
    return 3 if bad else 0


def _mean_error(rows: Sequence[Row]) -> Fraction:
    return sum((abs(row["error"]) for row in rows), Fraction(0)) / len(rows)


def _line(row: Row) -> dict[str, str]:
    """A figure as people read it."""
    return {
        "case": row["case"],
        "figure": row["figure"],
        "theirs": f"{'≤ ' if row['at_most'] else ''}{number(row['theirs'])}",
        "ours": number(row["ours"]),
        "error": f"{round(float(row['error']), 4) or 0:+.4f}",
        "": "" if row["good"] else "beyond its tolerance",
    }


def _publications(rows: Sequence[Row]) -> list[dict[str, str]]:
    """A line a publication."""
    lines = []
    for name, group in groupby(rows, key=itemgetter("publication")):
        own = list(group)
        lines.append(
            {
                "publication": name,
                "figures": str(len(own)),
                "mean absolute error": f"{float(_mean_error(own)):.5f}",
                "beyond tolerance": str(sum(not row["good"] for row in own)),
            }
        )
    return lines
