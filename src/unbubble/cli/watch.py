"""unbubble watch: a running job's steps as they happen."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unbubble import quantity
from unbubble.cli.output import print_json
from unbubble.errors import InputError, some
from unbubble.quantity import percent
from unbubble.terminal import joined, wrapped

if TYPE_CHECKING:
    from unbubble.monitor import Follower, Ready

MOST_BEHIND = 100
"""Steps of one look; where more have come, only the last ones are told (`--json` tells all)."""


@click.command("watch")
@click.argument("folders", nargs=-1, metavar="FOLDER…")
@click.option("--price", metavar="AMOUNT", help="What a device costs an hour; idling gets a price.")
@click.option("--port", type=click.IntRange(1, 65535), help="Serve Prometheus metrics there.")
@click.option("--address", default="127.0.0.1", show_default=True,
              help="The address to serve them on; 0.0.0.0 for everyone.")  # fmt: skip
@click.option("--textfile", type=Path, metavar="FILE",
              help="Write the metrics for node_exporter's textfile collector.")  # fmt: skip
@click.option("--once", is_flag=True, help="Tell of the steps that are there, then end.")
@click.option("--interval", type=click.FloatRange(0.05), default=2.0, show_default=True,
              help="Seconds between two looks.")  # fmt: skip
@click.option("--alerts", is_flag=True, help="Print alert rules for Prometheus, then end.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each step.")
def command(
    folders: tuple[str, ...],
    price: str | None,
    port: int | None,
    address: str,
    textfile: Path | None,
    once: bool,
    interval: float,
    alerts: bool,
    as_json: bool,
) -> None:
    """Follow the live records that `unbubble.record` leaves in FOLDER… (the shared one, or those of
    all hosts): every step's bubble, its five classes and what idling costs.

    The steps of the last run that are complete are told, then the new ones until an interrupt.
    """
    from unbubble.files import expect_writable
    from unbubble.monitor import Follower, summary

    if alerts:
        rules = Path(__file__).parents[1].joinpath("monitor", "alerts.yml").read_text()
        print_json({"alerts": rules, "unit": ""}) if as_json else click.echo(rules, nl=False)
        return
    if not folders:
        raise InputError("name the folder of the live records, as in `unbubble watch steps`")
    amount = None if price is None else quantity.number(price, "--price")
    follower = Follower(folders)
    expect_writable(textfile)
    exporter = None
    if port or textfile:
        from unbubble.monitor.exporter import Exporter

        exporter = Exporter()
        if port:
            exporter.serve(port, address)
    gone: list[Path] = []
    for look, news in enumerate(_looks(follower, interval, once)):
        before, gone = gone, [folder for folder in follower.folders if not folder.is_dir()]
        if gone and gone != before:
            told = f"{', '.join(map(str, gone))}: gone; steps are told once it is there again"
            click.echo(wrapped(told), err=True)
        if not look and not news:
            click.echo(wrapped(_nothing(follower)), err=True)
        for ready in news if as_json or once else news[-MOST_BEHIND:]:
            found = summary(ready, amount)
            print_json(found) if as_json else click.echo(_line(found, follower))
            if exporter:
                exporter.add(found)
        if exporter:
            exporter.ranks(follower.last_step, follower.given_up)
            if textfile:
                exporter.write(textfile)
    for note in follower.notes:
        click.echo(f"ignored: {note}", err=True)


def _looks(follower: "Follower", interval: float, once: bool) -> "Iterator[list[Ready]]":
    """What each look brings, without an end unless it is to be the only one."""
    from time import sleep

    while True:
        yield follower.poll()
        if once:
            return
        sleep(interval)


def _nothing(follower: "Follower") -> str:
    """Why the first look brings no step."""
    if silent := follower.silent:
        return f"no step is complete: nothing of rank {some(silent)} is there"
    if follower.last_step:
        return "no step is complete: none is there of all ranks"
    folders = ", ".join(map(str, follower.folders))
    return f"{folders}: no step is there yet; unbubble.record writes them"


def _line(step: Mapping[str, Any], follower: "Follower") -> str:
    of = f"pipeline {step['pipeline_ranks'][0]}  " if follower.pipelines > 1 else ""
    head = f"{of}step {step['step']}"
    if step["step_s"] is None:
        return wrapped(f"{head}  cannot tell: {'; '.join(step['unknown'])}")
    parts = step["fractions"]
    imbalance = parts["imbalance_static"] + parts["imbalance_jitter"]
    items = [
        f"{head}  {quantity.shown_time(step['step_s'])}",
        f"idle {percent(step['bubble_fraction'])}",
        f"compute {percent(parts['compute'])}",
        f"bubble {percent(parts['bubble'])}",
        f"imbalance {percent(imbalance)}",
        f"communication {percent(parts['communication'])}",
        f"overhead {percent(parts['overhead'])}",
        f"slowest rank {step['slowest_rank']}",
    ]
    if step["idle_cost"] is not None:
        items.append(f"idle cost {step['idle_cost']:.4g}")
    return joined(items, "  ")
