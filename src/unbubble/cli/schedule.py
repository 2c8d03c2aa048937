"""`unbubble schedule`: the registry of schedules, their pictures, their files, their proof."""

import sys
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from unbubble.cli import Group
from unbubble.cli import options as shared
from unbubble.cli.output import print_json, say
from unbubble.errors import InputError, listed
from unbubble.families import families, family
from unbubble.files import read_text, write_text
from unbubble.quantity import counted
from unbubble.schedule import Schedule, format_csv, parse_csv
from unbubble.schedule.check import SENDS, Report, check, check_rows, grid
from unbubble.schedule.lowering import RECEIVES, compute_only, lower
from unbubble.schedule.pytorch_csv import parse_rows
from unbubble.schedule.rules import positions
from unbubble.schedule.whole_stage import for_pytorch
from unbubble.terminal import columns, wrapped

_WHAT = "a schedule as PyTorch's CSV"
_MOST_LINES = 20
"""Faults that the human answer lists; --json has them all."""


@click.group(cls=Group)
def command() -> None:
    """List, draw, export and prove schedules."""


@command.command("list", short_help="the schedules that are known by name")
@shared.json
def list_(as_json: bool) -> None:
    """The schedules that are known by name."""
    if as_json:
        keys = ("name", "aliases", "summary", "source", "bubble", "memory", "needs")
        rows = [{key: getattr(f, key) for key in keys} for f in families().values()]
        print_json({"schedules": rows, "unit": ""})
        return
    indent = " " * (max(map(len, families())) + 2)
    for name, entry in families().items():
        click.echo(wrapped(f"{name.ljust(len(indent))}{entry.summary}", indent=len(indent)))
        needs = f"needs {entry.needs}; bubble {entry.bubble}; holds {entry.memory}"
        click.echo(click.style(wrapped(indent + needs, indent=0), dim=True))


@command.command(short_help="a schedule drawn at given times")
@click.argument("schedule")
@shared.sizes
@shared.times
@shared.costs
@click.option("--width", type=click.IntRange(min=20), help="Columns of the drawing.")
@shared.json
def show(
    schedule: str,
    ranks: int | None,
    microbatches: int | None,
    virtual: int | None,
    width: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Draw SCHEDULE, a name or a file, at the given times.

    Without any a plan is drawn at its own, and everything else at F = I = W = 1.
    """
    from unbubble.prediction import predict
    from unbubble.simulate import simulate

    costs = shared.CostOptions(options)
    order = _schedule(schedule, ranks, microbatches, virtual, costs)
    if as_json:
        rows = [[str(a) for a in order.actions(rank)] for rank in range(order.ranks)]
        print_json({**_about(order), "order": rows, "unit": ""})
        return
    from unbubble.plan import load_plan
    from unbubble.report.text import render

    if Path(schedule).suffix.lower() == ".json" and not costs.path and not costs.given.times:
        timeline = predict(order, load_plan(schedule).costs)
    else:
        timeline = simulate(order, costs.of(order).costs)
    click.echo(render(timeline, width=width, color=sys.stdout.isatty()))


@command.command(short_help="a schedule as the CSV that PyTorch's runtime loads")
@click.argument("schedule")
@shared.sizes
@click.option("--with-comms", is_flag=True, help="Put the sends and receives in.")
@click.option(
    "--receive",
    type=click.Choice(RECEIVES),
    help="When receives are posted [early]: with the send, as PyTorch does; right before the use; "
    "when the data are about to be sent; the same where transfers hold their ranks.",
)
@click.option(
    "--plain", is_flag=True, help="Sends and receives only, without UNSHARD, RESHARD, REDUCE_GRAD."
)
@click.option("-o", "--output", type=click.Path(), help="Write there instead of printing.")
@shared.json
def export(
    schedule: str,
    ranks: int | None,
    microbatches: int | None,
    virtual: int | None,
    with_comms: bool,
    receive: str | None,
    plain: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Write SCHEDULE, a name or a file, as the CSV that PyTorch's runtime loads.

    Without --with-comms it is loaded with format="compute_only", with it as "compute_comms". A
    file's own sends and receives are taken out first. With --json `csv` is the text, or with -o the
    path that it was written to.
    """
    order = compute_only(_schedule(schedule, ranks, microbatches, virtual))
    if (receive or plain) and not with_comms:
        raise InputError(
            "--receive and --plain say how sends and receives are put in; they need --with-comms"
        )
    if with_comms:
        receive = receive or "early"
        order = lower(order, receive) if plain else for_pytorch(order, receive)
    text = format_csv(order)
    if output is not None:
        write_text(output, text)
    elif not as_json:
        click.echo(text, nl=False)
    prove = partial(check, order, forward_only=not order.has_backward)
    faults = prove().faults
    stuck = [] if faults else [send for send in SENDS if not prove(send)]
    if as_json:
        answer = {
            **_about(order),
            "csv": text if output is None else output,
            "format": "compute_comms" if with_comms else "compute_only",
            "faults": [fault._asdict() for fault in faults],
            "deadlocks_under": stuck,
            "unit": "",
        }
        print_json(answer)
        return
    verdict = f"deadlocks under {listed(stuck)} sends" if stuck else "cannot deadlock"
    if faults:
        verdict = f"{counted(len(faults), 'fault')}, see `unbubble schedule check`"
    if output is not None:
        say(f"{output}: {_size(order)}; {verdict}")
    elif faults or stuck:
        click.echo(f"{schedule}: {verdict}", err=True)


@command.command(
    "check", short_help="the proof that a file is complete, consistent, free of deadlock"
)
@click.argument("file", type=click.Path())
@click.option(
    "--send",
    type=click.Choice((*SENDS, "rendezvous")),
    default="blocking",
    show_default=True,
    help="A send waits for its receive (or rendezvous), waits for nothing, or is posted as "
    "one group with the adjacent transfers of the same peer.",
)
@click.option("--forward-only", is_flag=True, help="Inference: no backward is missed.")
@shared.json
def check_(file: str, send: str, forward_only: bool, as_json: bool) -> int:
    """Prove that the schedule in FILE is complete, consistent and free of deadlock.

    Exit status 3 if it is not.
    """
    send = "blocking" if send == "rendezvous" else send
    rows, prove = _rows(file, forward_only)
    report = prove(send)
    if as_json:
        answer = {
            "file": file,
            "ranks": len(rows),
            "send": send,
            "faults": [fault._asdict() for fault in report.faults],
            "deadlock": [blocked.action for blocked in report.deadlock],
            "blocked": [blocked._asdict() for blocked in report.deadlock],
            "unit": "",
        }
        print_json(answer)
    elif report.good:
        actions = sum(1 for row in rows for _ in positions(row))
        say(
            f"{file}: {counted(len(rows), 'rank')}, {counted(actions, 'action')}: complete, "
            f"consistent, free of deadlock under {send} sends"
        )
    else:
        say(f"{file}: {_explained(report)}")
        click.echo("\n" + _grid(rows, report))
        if not report.faults and (free := [s for s in SENDS if prove(s)]):
            say(f"\nUnder {listed(free)} sends it is free of deadlock.")
    return 0 if report.good else 3


def _grid(rows: Sequence["array[int]"], report: Report) -> str:
    """The orders around the first fault, as many positions as the terminal is wide."""
    for positions_shown in (9, 7, 5, 3, 1):
        drawn = grid(rows, report.faults or report.deadlock, positions_shown)
        if not columns() or max(map(len, drawn.splitlines())) <= columns():
            break
    return drawn


def _schedule(
    name: str,
    ranks: int | None,
    microbatches: int | None,
    virtual: int | None,
    costs: shared.CostOptions | None = None,
) -> Schedule:
    """The schedule of a family by its name (made for the costs, if it adapts to them), or of a CSV
    or plan file by its path."""
    path = Path(name)
    if path.suffix.lower() in (".csv", ".json") or (ranks is None and path.is_file()):
        if (ranks, microbatches, virtual) != (None, None, None):
            raise InputError(f"{name} is a file; -p, -m and -v go with the name of a schedule")
        if path.suffix.lower() == ".json":
            return _of_plan(name)
        return parse_csv(read_text(name, _WHAT), path.name, name=path.stem)
    if costs is not None:
        return costs.order(name, ranks, microbatches, virtual)
    entry = family(name)
    p = shared.count(ranks, "p", "ranks")
    m = shared.count(microbatches, "m", "microbatches", 8)
    return entry.generate(p, m, virtual)


def _rows(file: str, forward_only: bool) -> tuple[Sequence["array[int]"], Callable[[str], Report]]:
    """The rows of a CSV or plan file, and their check for a kind of sends."""
    if Path(file).suffix.lower() == ".json":
        schedule = _of_plan(file)
        return schedule.codes, partial(check, schedule, forward_only=forward_only)
    rows = parse_rows(read_text(file, _WHAT), Path(file).name)
    return rows, partial(check_rows, rows, forward_only=forward_only)


def _of_plan(file: str) -> Schedule:
    from unbubble.plan import load_plan

    return load_plan(file).schedule


def _about(order: Schedule) -> dict[str, Any]:
    return {
        "schedule": order.name,
        "ranks": order.ranks,
        "num_stages": order.num_stages,
        "microbatches": order.microbatches,
    }


def _size(order: Schedule) -> str:
    actions = sum(1 for rank in range(order.ranks) for _ in order.actions(rank))
    return (
        f"{counted(order.ranks, 'rank')}, {counted(order.num_stages, 'stage')}, "
        f"{counted(order.microbatches, 'microbatch')}, {counted(actions, 'action')}"
    )


def _explained(report: Report) -> str:
    """Every fault or, in a schedule without faults, every blocked action, one line each."""
    if report.faults:
        title = counted(len(report.faults), "fault")
        lines = [
            f"rank {fault.rank}, position {fault.position}, {fault.action}: {fault.fault}"
            for fault in report.faults
        ]
    else:
        title = f"deadlock under {report.send} sends; these wait for each other"
        lines = [
            f"rank {blocked.rank}, position {blocked.position}, {blocked.action}: waits for "
            f"{blocked.waits_for}"
            for blocked in report.deadlock
        ]
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"and {len(lines) - _MOST_LINES} more"]
    return "\n  ".join([title, *lines])
