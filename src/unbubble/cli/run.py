"""unbubble run: a plan for real, beside what was predicted."""

from pathlib import Path

import click

from unbubble.cli import options as shared
from unbubble.cli.output import print_json, say, warn
from unbubble.cli.progress import progress
from unbubble.errors import RunError
from unbubble.quantity import counted


@click.command("run")
@click.argument("plan_path", metavar="PLAN")
@click.option("--model", metavar="MODULE:FUNCTION", help="The model [default: the plan's].")
@click.option("--steps", type=click.IntRange(1, 100000), default=8, show_default=True,
              help="Measured steps.")  # fmt: skip
@click.option("--warmup", type=click.IntRange(0, 100000), default=2, show_default=True,
              help="Steps before, not measured.")  # fmt: skip
@click.option("--verify/--no-verify", default=True,
              help="Compare the gradients with one process [default: yes].")  # fmt: skip
@click.option("--seed", type=int, default=0, help="Seed of the parameters.")
@click.option("--learning-rate", type=click.FloatRange(0), default=1e-3, show_default=True,
              help="Of plain SGD.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(1), default=120.0, show_default=True,
              help="Seconds one rank may wait for another.")  # fmt: skip
@click.option("--recording", type=Path, metavar="FILE", help="Save every measured step.")
@shared.pictures
@shared.json
def command(
    plan_path: str,
    model: str | None,
    steps: int,
    warmup: int,
    verify: bool,
    seed: int,
    learning_rate: float,
    timeout: float,
    recording: Path | None,
    svg: str | None,
    chrome: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Run PLAN on processes of this machine, or inside your own torchrun, one process a rank.

    PyTorch's schedule runtime runs the plan's schedule on gloo. The gradients of two accumulated
    steps are compared with one process that runs the whole batch; a difference above rounding
    fails the command.
    """
    from unbubble.files import expect_apart, expect_writable
    from unbubble.plan import load_plan
    from unbubble.prediction import predict
    from unbubble.report import write
    from unbubble.runtime.launch import crowding, is_main
    from unbubble.runtime.outcome import Outcome
    from unbubble.runtime.replica import left_out, setup, target_of
    from unbubble.runtime.run import run

    outputs = {"--recording": recording, "--svg": svg, "--chrome": chrome, "--html": html}
    expect_apart(outputs, [plan_path])
    expect_writable(*outputs.values())
    plan = load_plan(plan_path)
    target = target_of(plan, model, plan_path)
    missing = left_out(plan)
    if is_main():
        for sentence in filter(None, [*missing, crowding(plan.schedule.ranks)]):
            warn(sentence)
    predicted = predict(plan.schedule, plan.costs)
    with progress("run") as tell:
        [measured] = run(
            [setup(plan)],
            target,
            steps=steps,
            warmup=warmup,
            verify=verify,
            seed=seed,
            learning_rate=learning_rate,
            timeout_s=timeout,
            on_progress=tell,
        )
    if not is_main():
        return
    outcome = Outcome(predicted=predicted, measured=measured)
    try:
        if recording:
            measured.save(recording)
        if svg or chrome or html:
            write(
                predicted,
                measured=outcome.typical,
                svg=svg,
                chrome=chrome,
                html=html,
                title=plan.name,
                facts=[("plan", plan_path), ("model", target)],
                costs=plan.costs,
                attributions=[outcome.predicted_attribution, outcome.attribution],
                gradients=outcome.gradients,
            )
    finally:  # a disk that is full does not take what was measured with it
        if as_json:
            print_json(outcome.document() | {"left_out": missing})
        else:
            order = plan.schedule
            name = order.name or "custom"
            sizes = f"{counted(order.ranks, 'rank')}, {counted(order.microbatches, 'microbatch')}"
            say(f"{name}, {sizes}, {target}")
            click.echo("\n".join(outcome.lines()))
    if (gradients := measured.gradients) and not gradients.equal:
        raise RunError(
            f"the gradients differ from one process by {gradients.shown} in "
            f"{gradients.parameter}; {gradients.blame}"
        )
