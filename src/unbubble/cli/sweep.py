"""unbubble sweep: more microbatches, until they stop to pay."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from unbubble import quantity
from unbubble.cli import options as shared
from unbubble.cli.output import number, percent, print_json, print_table
from unbubble.errors import InputError

if TYPE_CHECKING:
    from unbubble.sweep import Row


@click.command("sweep")
@click.option("--schedule", default="1f1b", show_default=True, metavar="NAME")
@click.option("-p", "--ranks", type=int, help="Pipeline ranks.")
@click.option("-v", "--virtual-stages", "virtual", metavar="N,N,…", help="Stages a rank holds.")
@click.option("--most", type=int, default=1024, show_default=True, help="The largest m to try.")
@click.option("--pays", default="2%", show_default=True, help="The gain that a doubling must give.")
@click.option("--throughput", metavar="M:X,…", help="Measured, as in 8:8077,16:7987.")
@click.option("--seconds", metavar="M:T,…", help="Measured times of the same work instead.")
@click.option("--control", metavar="M:X,…", help="Throughput of the same sweep on a single rank.")
@shared.times
@shared.costs
@shared.json
def command(
    schedule: str,
    ranks: int | None,
    virtual: str | None,
    most: int,
    pays: str,
    throughput: str | None,
    seconds: str | None,
    control: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Double m from 2 until it stops to pay, for every v, as predicted by simulation.

    With measured throughputs, say whether they follow the bubble.
    """
    from unbubble.families import family
    from unbubble.sweep import doublings, sweep, verdict

    p = shared.count(ranks, "p", "ranks")
    if most < 2:
        raise InputError(f"--most is {most}; the first m is 2, so it is at least that")
    gain = quantity.fraction(pays, "--pays")
    costs = shared.CostOptions(options)
    entry = family(schedule)
    observed = _observed(throughput, seconds, control)
    chosen: Sequence[int | None] = [None] if virtual is None else shared.counts(virtual, "-v")
    if observed is not None and len(chosen) > 1:
        raise InputError("measurements are of one -v; give only that one")
    swept = []
    for v in chosen:
        counts = doublings(entry, p, v, most) if observed is None else sorted(observed)
        rows = sweep(entry, p, v, counts, costs.costs_of, observed=observed, pays=gain)
        swept.append((rows, verdict(rows, gain)))
    best, words = max(swept, key=lambda pair: max(row.throughput for row in pair[0]))
    answer: dict[str, Any] = {
        "schedule": entry.name,
        "ranks": p,
        "rows": [row for rows, _ in swept for row in _rows(rows)],
        "verdict": words.text,
        "best_virtual_stages": best[0].virtual,
        "stops_at": words.stops_at,
        "limited_by": words.limited_by or None,
        "unit": best[0].timeline.unit,
    }
    if as_json:
        print_json(answer)
        return
    unit = f" {answer['unit']}".rstrip()
    print_table(
        [
            {
                "v": str(row["virtual_stages"]),
                "m": str(row["microbatches"]),
                f"step{unit}": number(row["step"]),
                "bubble": percent(row["bubble_fraction"]),
                f"microbatches /{unit or ' unit'}": number(row["throughput"]),
                "gain": _times(row["gain"]),
            }
            | ({} if observed is None else {"observed gain": _times(row["observed_gain"])})
            for row in answer["rows"]
        ]
    )
    for rows, found in swept:
        click.echo(f"v = {rows[0].virtual}: {found.text}")


def _rows(rows: "Sequence[Row]") -> list[dict[str, Any]]:
    """The rows of one v; gains are over the row before."""
    answer = []
    for before, row in zip([None, *rows[:-1]], rows, strict=True):
        gains = (None, None) if before is None else _gains(before, row)
        step = Fraction(row.microbatches) / row.throughput
        answer.append(
            {
                "virtual_stages": row.virtual,
                "microbatches": row.microbatches,
                "step": step,
                "bubble_fraction": row.bubble_fraction,
                "throughput": row.throughput,
                "gain": gains[0],
                "observed": row.observed,
                "observed_gain": gains[1],
            }
        )
    return answer


def _gains(before: "Row", row: "Row") -> tuple[Fraction, Fraction | None]:
    """How many times the throughput of the row before, as predicted and as observed."""
    predicted = row.throughput / before.throughput
    if row.observed is None or before.observed is None:
        return predicted, None
    return predicted, row.observed / before.observed


def _times(gain: Fraction | None) -> str:
    return "-" if gain is None else f"× {float(gain):.3f}"


def _observed(
    throughput: str | None, seconds: str | None, control: str | None
) -> dict[int, Fraction] | None:
    """Measured throughput by m, divided by the control's."""
    if throughput is not None and seconds is not None:
        raise InputError("--throughput and --seconds both give measurements; use one")
    if throughput is None and seconds is None:
        if control is not None:
            raise InputError("--control goes with --throughput or --seconds")
        return None
    if throughput is not None:
        found = _series(throughput, "--throughput")
    else:
        found = {m: 1 / time for m, time in _series(seconds or "", "--seconds").items()}
    beside = _series(control, "--control") if control is not None else {}
    if control is not None and beside.keys() != found.keys():
        raise InputError(
            f"--control has m = {_list(beside)} and the sweep {_list(found)}; they must be the same"
        )
    if len(found) < 2:
        raise InputError("a verdict needs measurements at two numbers of microbatches at least")
    return {m: value / beside.get(m, 1) for m, value in found.items()}


def _series(text: str, option: str) -> dict[int, Fraction]:
    """Values above 0 by m, as in 8:8077,16:7987."""
    found = {}
    for part in text.split(","):
        m, colon, value = part.partition(":")
        if not colon or not m.strip().isdecimal() or len(m) > 9 or int(m) < 1:
            raise InputError(f"{option}: {part[:40]!r} is not M:X, as in 8:8077")
        found[int(m)] = quantity.number(value, option)
        if found[int(m)] <= 0:
            raise InputError(f"{option}: {part[:40]!r} must be above 0")
    return found


def _list(values: Mapping[int, Any]) -> str:
    return ", ".join(map(str, sorted(values)))
