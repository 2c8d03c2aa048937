"""unbubble demo: the whole loop on this machine."""

from pathlib import Path

import click

from unbubble.cli import options as shared
from unbubble.cli.output import print_json
from unbubble.cli.progress import progress


@click.command("demo")
@click.option("-o", "--output", "folder", type=Path, default=Path("unbubble-demo"),
              show_default=True, help="The folder for everything that it makes.")  # fmt: skip
@click.option("--model", metavar="MODULE:FUNCTION", help="Your model [default: a decoder].")
@click.option("-p", "--ranks", type=click.IntRange(2, 64), default=2, show_default=True,
              help="Pipeline ranks, a process each.")  # fmt: skip
@click.option("-m", "--microbatches", type=click.IntRange(1, 1024), default=8, show_default=True,
              help="Microbatches in a step.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(2, 10000), default=10, show_default=True,
              help="Profiled repetitions of every layer.")  # fmt: skip
@click.option("--steps", type=click.IntRange(1, 10000), default=10, show_default=True,
              help="Measured steps of each plan.")  # fmt: skip
@shared.json
def command(
    folder: Path,
    model: str | None,
    ranks: int,
    microbatches: int,
    rounds: int,
    steps: int,
    as_json: bool,
) -> None:
    """Profile a real model, choose a plan, run it beside the naive one, and report both."""
    from unbubble import demo
    from unbubble.errors import InputError
    from unbubble.runtime.launch import inside_torchrun

    if inside_torchrun():
        raise InputError("a demo starts its own processes; call it without torchrun")
    try:
        with progress("demo") as tell:
            answer = demo.demo(
                folder,
                target=model or demo.TARGET,
                ranks=ranks,
                microbatches=microbatches,
                rounds=rounds,
                steps=steps,
                say=lambda text: tell.above(text, err=as_json),
                on_progress=tell,
            )
    except KeyboardInterrupt:
        if folder.is_dir() and any(folder.iterdir()):
            click.echo(f"unbubble: what was found until now is in {folder}/", err=True)
        raise
    if as_json:
        print_json(answer)
