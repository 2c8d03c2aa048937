"""unbubble sweep: more microbatches, until they stop paying."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from unbubble import quantity
from unbubble.cli import options as shared
from unbubble.cli.measurements import measurements, sizes
from unbubble.cli.output import print_json, warn
from unbubble.cli.progress import progress
from unbubble.errors import InputError

if TYPE_CHECKING:
    from unbubble.cli.swept import Swept
    from unbubble.sweep import Row
    from unbubble.sweep.variant import Variant

MOST, MOST_RUN = 1024, 256
RUN_ONLY = ("model", "steps", "warmup", "timeout")


@click.command("sweep")
@click.option("--schedule", metavar="NAME", help="The family [default: the plan's, else 1f1b].")
@click.option("-p", "--ranks", metavar="N,N,…", help="Pipeline ranks; several with -m.")
@click.option("-m", "--microbatches", type=int, help="Of every step, where -p has several.")
@click.option("--devices", type=int, help="All of them in use, for several -p [default: p].")
@click.option("-v", "--virtual-stages", "virtual", metavar="N,N,…", help="Stages a rank holds.")
@click.option("--most", type=int, help=f"The largest m [default: {MOST}, with --run {MOST_RUN}].")
@click.option("--pays", default="2%", show_default=True, help="The gain that a doubling must give.")
@click.option("--memory", metavar="SIZE", help="What a rank can hold, as in 40GiB; ends the sweep.")
@click.option("--plan", "plan_path", metavar="FILE", help="A plan: its family, costs and layers.")
@click.option("--run", "for_real", is_flag=True, help="Run every m of the plan for real.")
@click.option("--model", metavar="MODULE:FUNCTION", help="With --run [default: the plan's].")
@click.option("--steps", type=click.IntRange(1, 100000), help="With --run: steps [default: 5].")
@click.option("--warmup", type=click.IntRange(0, 100000), help="Steps before them [default: 2].")
@click.option("--timeout", type=click.FloatRange(1),
              help="Seconds one rank may wait for another [default: 120].")  # fmt: skip
@click.option("--throughput", metavar="M:X,…", help="Measured, as in 8:8077,16:7987.")
@click.option("--seconds", metavar="M:T,…", help="Measured times of the same work instead.")
@click.option("--control", metavar="M:X,…", help="Throughput of the same sweep on a single rank.")
@shared.times
@shared.costs
@shared.json
def command(
    schedule: str | None,
    ranks: str | None,
    microbatches: int | None,
    devices: int | None,
    virtual: str | None,
    most: int | None,
    pays: str,
    memory: str | None,
    plan_path: str | None,
    for_real: bool,
    throughput: str | None,
    seconds: str | None,
    control: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Double m from 2 until it stops paying, for every v, as predicted by simulation.

    With --plan and --run each m is also run on processes of this machine, two neighbours in one
    launch, beside its prediction; an interrupt keeps the rows that are finished. With measured
    throughputs, say whether they follow the bubble.

    Several -p are swept at one -m instead, for the same model: the times are those of the whole
    model then, and the measurements go by p. With --devices replicas use all of them.
    """
    from unbubble.cli.swept import Swept

    counts = None if ranks is None else shared.different_counts(ranks, "-p")
    several = counts is not None and len(counts) > 1
    if not several and (microbatches is not None or devices is not None):
        raise InputError(
            f"{'-m' if microbatches is not None else '--devices'} goes with several -p; with one, "
            "it is m that is swept"
        )
    most = most if most is not None else MOST_RUN if for_real else MOST
    if most < 2:
        raise InputError(f"--most is {most}; the first m is 2, so it is at least that")
    given = next((key for key in RUN_ONLY if options[key] is not None), None)
    if given is not None and not for_real:
        raise InputError(f"--{given} is for steps that are run; it goes with --run")
    gain = _gain(pays)
    room = None if memory is None else quantity.size(memory, "--memory")
    observed = measurements(throughput, seconds, control)
    chosen = _virtuals(virtual)
    if observed is not None and (len(chosen) > 1 or for_real):
        raise InputError(
            "--run measures by itself; leave the measurements out"
            if for_real
            else "measurements are of one -v; give only that one"
        )
    swept = Swept(pays=gain, memory_bytes=room, measured=observed is not None or for_real)
    if counts is not None and several:
        if plan_path is not None or room is not None or len(chosen) > 1:
            raise InputError("several -p go without --plan, --memory and further -v")
        _ranked(swept, schedule, counts, microbatches, chosen[0], observed, devices, options)
    elif plan_path is None:
        if for_real:
            raise InputError(
                "--run is of a plan: give --plan FILE, as `unbubble partition -o` writes it"
            )
        p = counts[0] if counts is not None else None
        _typed(swept, schedule, p, chosen, most, observed, shared.CostOptions(options))
    else:
        costs = shared.CostOptions(options)
        if ranks is not None or costs.given.times or costs.path is not None:
            raise InputError("--plan has ranks and costs of its own; give none beside it")
        _planned(swept, plan_path, schedule, chosen, most, observed, for_real, options, as_json)
    _show(swept, as_json)


def _typed(
    swept: "Swept",
    schedule: str | None,
    ranks: int | None,
    chosen: Sequence[int | None],
    most: int,
    observed: Mapping[int, Fraction] | None,
    costs: shared.CostOptions,
) -> None:
    """Sweep a family at times that were typed, or of a costs file."""
    from unbubble.families import family
    from unbubble.sweep import doublings, sweep

    p = shared.count(ranks, "p", "ranks")
    entry = family(schedule or "1f1b")
    swept.about(entry.name, p)
    for v in chosen:
        with swept.one_of(chosen, v):
            counts = doublings(entry, p, v, most) if observed is None else sorted(observed)
            swept.take(
                sweep(
                    (entry.fitted(p, m, v, costs_of=costs.costs_of) for m in counts),
                    costs.costs_of,
                    observed=observed,
                    pays=swept.pays,
                    memory_bytes=swept.memory_bytes,
                )
            )


def _ranked(
    swept: "Swept",
    schedule: str | None,
    ranks: Sequence[int],
    microbatches: int | None,
    virtual: int | None,
    observed: Mapping[int, Fraction] | None,
    devices: int | None,
    options: Mapping[str, Any],
) -> None:
    """Sweep a family over ranks at one m; a rank's share of the model is the smaller the more."""
    from unbubble.families import family
    from unbubble.sweep import over_ranks

    m = shared.count(microbatches, "m", "microbatches", 8)
    entry = family(schedule or "1f1b")
    if observed is not None and sorted(observed) != sorted(ranks):
        raise InputError(
            f"the measurements are of p = {sizes(observed)} and -p is {', '.join(map(str, ranks))}"
        )
    for p in ranks:
        if devices is not None and (devices < 1 or devices % p):
            raise InputError(f"--devices {devices} is no multiple of p = {p}, one of -p")
    costs = shared.CostOptions(options, parts=True)
    swept.about(entry.name, None)
    # on the same devices fewer ranks idle less: from the largest bubble to the smallest
    orders = (
        entry.fitted(p, m, virtual, costs_of=costs.costs_of)
        for p in sorted(ranks, reverse=devices is not None)
    )
    swept.take(over_ranks(orders, costs.costs_of, observed=observed, devices=devices))


def _planned(
    swept: "Swept",
    path: str,
    schedule: str | None,
    chosen: Sequence[int | None],
    most: int,
    observed: Mapping[int, Fraction] | None,
    for_real: bool,
    options: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Sweep the family of a plan at its costs, by simulation or for real."""
    from unbubble.plan import load_plan
    from unbubble.prediction import predict
    from unbubble.sweep import doublings, sweep
    from unbubble.sweep.variant import variant

    plan = load_plan(path)
    p = plan.schedule.ranks
    variants = []
    counts: dict[int, Sequence[int]] = {}
    for v in chosen:
        with swept.one_of(chosen, v):
            each = variant(plan, schedule, v)
            counts[each.virtual] = (
                doublings(each.family, p, each.virtual, most)
                if observed is None
                else sorted(observed)
            )
            variants.append(each)
    swept.about(variants[0].family.name, p)
    if for_real:
        _run(swept, path, chosen, variants, counts, options, as_json)
        return
    for each in variants:
        with swept.one_of(chosen, each.virtual):
            swept.take(
                sweep(
                    map(each.schedule, counts[each.virtual]),
                    lambda order, costs=each.costs: costs,  # type: ignore[misc]
                    observed=observed,
                    pays=swept.pays,
                    simulated=predict,
                    memory_bytes=swept.memory_bytes,
                ),
                each.layers_per_stage,
            )


def _run(
    swept: "Swept",
    path: str,
    chosen: Sequence[int | None],
    variants: "Sequence[Variant]",
    counts: Mapping[int, Sequence[int]],
    options: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Every row for real; what ends a sweep early leaves the rows that are finished."""
    from unbubble.runtime.doubling import Steps, sweep_run
    from unbubble.runtime.launch import crowding, inside_torchrun
    from unbubble.runtime.replica import left_out, target_of

    if inside_torchrun():
        raise InputError("a sweep starts its own processes; call it without torchrun")
    plan = variants[0].plan
    target = target_of(plan, options["model"], path)
    first = [each.with_microbatches(counts[each.virtual][0]) for each in variants]
    swept.left_out = list(dict.fromkeys(s for each in first for s in left_out(each)))
    for sentence in filter(None, [*swept.left_out, crowding(plan.schedule.ranks)]):
        warn(sentence)
    given = {
        "steps": options["steps"], "warmup": options["warmup"], "timeout_s": options["timeout"],
    }  # fmt: skip
    how = Steps(target=target, **{key: value for key, value in given.items() if value is not None})

    def rows(each: "Variant", tell: Any) -> "Iterator[Row]":
        return sweep_run(
            map(each.with_microbatches, counts[each.virtual]),
            how,
            pays=swept.pays,
            memory_bytes=swept.memory_bytes,
            on_progress=lambda line: tell(f"v = {each.virtual}, {line}"),
        )

    try:
        with progress("sweep") as tell:
            for each in variants:
                with swept.one_of(chosen, each.virtual):
                    swept.take(rows(each, tell), each.layers_per_stage)
    except BaseException as error:
        swept.ended = str(error) or "interrupted"
        if swept.rows:
            _show(swept, as_json)
        raise


def _show(swept: "Swept", as_json: bool) -> None:
    if as_json:
        print_json(swept.document())
    else:
        swept.print()


def _gain(pays: str) -> Fraction:
    gain = quantity.fraction(pays, "--pays")
    if gain < 0:
        raise InputError(f"--pays is {pays}: a doubling that loses does not pay; it is at least 0%")
    if gain >= 1:
        raise InputError(
            f"--pays is {pays}: twice the microbatches give at most twice the throughput, so it "
            "is below 100%, as in 2%"
        )
    return gain


def _virtuals(text: str | None) -> list[int | None]:
    if text is None:
        return [None]
    return list(shared.different_counts(text, "-v"))
