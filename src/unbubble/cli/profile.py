"""unbubble profile: measured costs of a real model, layer by layer."""

from pathlib import Path

import click

from unbubble.cli.output import say
from unbubble.cli.progress import progress


@click.command("profile")
@click.argument("target", default="unbubble.runtime.decoder:small")
@click.option("-o", "--output", type=Path, default=Path("costs.json"), show_default=True,
              help="The costs file to write.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True,
              help="Profile in so many processes at once, as a pipeline keeps them busy; two or "
                   "more also measure transfers.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(2, 10000), default=10, show_default=True,
              help="Measured repetitions of every layer.")  # fmt: skip
@click.option("--warmup", type=click.IntRange(0, 10000), default=2, show_default=True,
              help="Repetitions before, not measured.")  # fmt: skip
@click.option("--seed", type=int, default=0, help="Seed of the parameters.")
@click.option("--timeout", type=click.FloatRange(1), default=120.0, show_default=True,
              help="Seconds one process may wait for another.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the costs file as well.")
def command(
    target: str,
    output: Path,
    processes: int,
    rounds: int,
    warmup: int,
    seed: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Measure what every layer of TARGET costs and write a costs file.

    TARGET is MODULE:FUNCTION; the function returns the ordered list of layers, the loss and a
    sample batch. Without it the decoder that comes with unbubble is profiled.
    """
    from unbubble.costs_file import format_costs
    from unbubble.files import expect_writable, write_text
    from unbubble.runtime.launch import is_main
    from unbubble.runtime.profile import profile

    expect_writable(output)
    with progress("profile") as tell:
        found = profile(
            target,
            processes=processes,
            rounds=rounds,
            warmup=warmup,
            seed=seed,
            timeout_s=timeout,
            on_progress=tell,
        )
    if not is_main():
        return
    text = format_costs(
        found.costs, rows="layers", notes=found.notes(target), row_notes=found.row_notes()
    )
    try:
        write_text(output, text)
    finally:  # a disk that is full does not take what was measured with it
        click.echo(text, nl=False) if as_json else say(found.table())
    if not as_json:
        say(f"\nwritten to {output}")
