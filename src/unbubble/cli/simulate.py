"""unbubble simulate: what a schedule does with given costs, exactly."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unbubble.cli import options as shared
from unbubble.cli.output import Clock, number, print_json, print_table, say
from unbubble.errors import InputError
from unbubble.quantity import counted, percent, shown_size

if TYPE_CHECKING:
    from unbubble.schedule import Schedule

TAIL = "last sends, gradient reduction, clipping, optimizer"


@click.command("simulate")
@click.option("--schedule", metavar="NAME", help="A schedule by name; `unbubble schedule list`.")
@click.option("--csv", "csv_path", metavar="FILE", help="A schedule as PyTorch's CSV instead.")
@click.option("--plan", "plan_path", metavar="FILE", help="A plan: its schedule and its costs.")
@shared.sizes
@shared.times
@shared.costs
@click.option("--what-if", "ask", is_flag=True, help="What each change would win, most first.")
@click.option("--jitter", metavar="PART", help="Vary each action at random, as in 5%.")
@click.option("--draws", type=click.IntRange(1, 10**7),
              help="With --jitter: random steps [default: 1000].")  # fmt: skip
@click.option("--seed", type=click.IntRange(0),
              help="With --jitter: where randomness starts [default: 0].")  # fmt: skip
@click.option("--draw", is_flag=True, help="Draw the timeline in the terminal.")
@shared.pictures
@shared.json
def command(
    schedule: str | None,
    csv_path: str | None,
    plan_path: str | None,
    ranks: int | None,
    microbatches: int | None,
    virtual: int | None,
    ask: bool,
    jitter: str | None,
    draws: int | None,
    seed: int | None,
    draw: bool,
    svg: str | None,
    chrome: str | None,
    html: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Simulate one step exactly: how long it takes, who waits, what is held.

    A single time is that of a whole rank, `9,12,7,13` those of ranks or stages, and 1.5ms or 200us
    carry a unit. A plan is simulated as it is run, with PyTorch's sends and receives; everything
    else with transfers that are a latency.
    """
    from unbubble.cli import questions
    from unbubble.cli.figures import figures
    from unbubble.quantity import fraction
    from unbubble.simulate import simulate
    from unbubble.simulate.critical import critical_path

    if draw and as_json:
        raise InputError("--draw prints a drawing and --json one object; use one of them")
    if jitter is None and (draws, seed) != (None, None):
        raise InputError("--draws and --seed are of random steps; give --jitter, as in 5%")
    costs = shared.CostOptions(options)
    if svg or chrome or html:
        from unbubble.files import expect_apart

        pictures = {"--svg": svg, "--chrome": chrome, "--html": html}
        expect_apart(pictures, [csv_path, plan_path, costs.path])
    if plan_path is None:
        order = _order(schedule, csv_path, ranks, microbatches, virtual, costs)
        stages = costs.of(order)
    else:
        given = (schedule, csv_path, ranks, microbatches, virtual, costs.path)
        if any(value is not None for value in given) or costs.given.times:
            raise InputError("--plan has a schedule and costs of its own; give nothing beside it")
        order, stages = _planned(plan_path)
    if not order.flush and (ask or jitter is not None):
        raise InputError(
            f"{order.name or 'the schedule'} never flushes, and --what-if and --jitter are about a "
            "step with a flush; leave them out"
        )
    timeline = simulate(order, stages.costs)
    if csv_path is not None:
        _check_whole(order, csv_path)
    if svg or chrome or html:
        from unbubble.report import write

        write(timeline, svg=svg, chrome=chrome, html=html, costs=stages.costs)
    answer = figures(timeline, stages.costs)
    if ask:
        again = None
        if schedule is not None:
            again = partial(_order, schedule, None, ranks, virtual=virtual, costs=costs)
        answer["what_if"] = questions.what_if_rows(order, stages.costs, again)
    if jitter is not None:
        spread = fraction(jitter, "--jitter")
        answer["jitter"] = questions.jitter_figures(
            order, stages.costs, spread, 1000 if draws is None else draws, seed or 0
        )
    if as_json:
        from unbubble.report.rows import part_of_run

        path = critical_path(order, stages.costs)
        answer["critical_path"] = [str(action) for action in path.actions]
        answer["critical_path_of"] = part_of_run(timeline)[0] or "step"
        answer["stage_sensitivity"] = path.stage_shares
        answer["layers_per_stage"] = list(stages.layers_per_stage) or None
        print_json(answer)
        return
    if draw:
        from unbubble.report.text import render

        click.echo(render(timeline, color=sys.stdout.isatty()) + "\n")
    clock = Clock.suiting(max(answer["step"], answer["makespan"]), answer["unit"])
    say(
        f"{answer['schedule']}, {counted(order.ranks, 'rank')}, "
        f"{counted(order.num_stages, 'stage')}, {counted(order.microbatches, 'microbatch')}"
    )
    if stages.layers_per_stage:
        say(f"layers per stage {','.join(map(str, stages.layers_per_stage))}")
    meanings = {
        "makespan": "first start to last end, over all ranks",
        "span": "the same of the rank that takes longest",
    }
    if "fill_and_drain" in answer:
        beyond = clock.text(answer["fill_and_drain"])
        meanings = {"makespan": f"a step of the steady state; fill and drain, once, {beyond} more"}
    for what, meaning in meanings.items():
        bubble = answer["bubble_fraction" if what == "makespan" else "bubble_fraction_span"]
        say(
            f"{what:<9} {clock.number(answer[what]):>10} {clock.unit:<2} bubble "
            f"{percent(bubble, 2):>7}  {meaning}"
        )
    if answer["step"] > answer["makespan"]:
        step = clock.number(answer["step"])
        say(f"step      {step:>10} {clock.unit:<2} to its very end: {TAIL}")
    say(
        f"idle {percent(answer['bubble_overhead'], 2)} of the work (bubble overhead); utilization "
        f"{percent(answer['utilization'], 2)}, to first order "
        f"{percent(answer['utilization_first_order'], 2)} (imbalance factor "
        f"{number(answer['imbalance_factor'])})\n"
    )
    held = answer["peak_bytes"]
    print_table(
        [
            {
                "rank": str(rank),
                clock.head("work"): clock.number(answer["work"][rank]),
                clock.head("idle"): clock.number(answer["idle"][rank]),
                "in flight": number(answer["peak_activations"][rank]),
                **({"with weights": shown_size(held[rank])} if held else {}),
            }
            for rank in range(order.ranks)
        ]
    )
    for note in answer["notes"]:
        say(f"\n{note}")
    if jitter is not None:
        say("\n" + questions.jitter_line(answer["jitter"], clock))
    if ask:
        click.echo()
        questions.print_what_ifs(answer["what_if"], clock)


def _planned(path: str) -> "tuple[Schedule, shared.StageTimes]":
    """The schedule of a plan and the costs of its stages, as `unbubble run` predicts them."""
    from unbubble.plan import load_plan
    from unbubble.prediction import as_run

    plan = load_plan(path)
    order, costs = as_run(plan.schedule, plan.costs)
    return order, shared.StageTimes(costs, plan.layers_per_stage)


def _order(
    name: str | None,
    csv_path: str | None,
    ranks: int | None,
    microbatches: int | None,
    virtual: int | None,
    costs: shared.CostOptions,
) -> "Schedule":
    """The schedule of a family, made for the costs if it adapts to them, or that of a CSV file."""
    if (name is None) == (csv_path is None):
        raise InputError("give --schedule NAME, --csv FILE or --plan FILE, one of them")
    if csv_path is None:
        assert name is not None
        return costs.order(name, ranks, microbatches, virtual)
    from unbubble.files import read_text
    from unbubble.schedule import parse_csv

    order = parse_csv(read_text(csv_path, "a schedule as PyTorch's CSV"), csv_path,
                      name=Path(csv_path).stem)  # fmt: skip
    found = (order.ranks, order.microbatches, order.num_stages // order.ranks)
    for letter, wanted, has in zip("pmv", (ranks, microbatches, virtual), found, strict=True):
        if wanted is not None and wanted != has:
            raise InputError(f"{csv_path} has {letter} = {has}, and -{letter} {wanted} was given")
    return order


def _check_whole(order: "Schedule", csv_path: str) -> None:
    """That nothing is missing, which would take no time; forwards alone are inference."""
    from unbubble.schedule.check import check

    if faults := check(order, forward_only=not order.has_backward).faults:
        rank, position, action, fault = faults[0]
        raise InputError(
            f"{csv_path}: rank {rank}, position {position}, {action}: {fault}; that is no whole "
            "step (`unbubble schedule check` shows all that is wrong)"
        )
