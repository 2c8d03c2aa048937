"""unbubble partition: layers to stages."""

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, dropwhile, pairwise, takewhile
from typing import TYPE_CHECKING, Any

import click

from unbubble.cli import options as shared
from unbubble.cli.output import Clock, print_json, print_table, say
from unbubble.errors import InputError

if TYPE_CHECKING:
    from unbubble.costs import Costs
    from unbubble.schedule import Placement, Schedule


@click.command("partition")
@click.option("--costs", "costs_path", metavar="FILE", help="Costs file with a row a layer.")
@click.option("--layers", type=int, metavar="N", help="So many equal layers instead.")
@shared.sizes
@click.option("--objective", type=click.Choice(("bottleneck", "makespan")), default="bottleneck",
              show_default=True, help="What to make small.")  # fmt: skip
@click.option("--layers-per-stage", "given", metavar="N,N,…", help="A split of your own, judged.")
@click.option("--schedule", metavar="NAME",
              help="Whose placement and makespan [default: 1f1b or interleaved-1f1b].")  # fmt: skip
@click.option("-o", "--output", metavar="PLAN", help="Write a plan file.")
@shared.json
def command(
    costs_path: str | None,
    layers: int | None,
    ranks: int | None,
    microbatches: int | None,
    virtual: int | None,
    objective: str,
    given: str | None,
    schedule: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Split layers into stages so that the busiest rank is as little busy as can be, exactly.

    --objective makespan goes on from there to the split that a descent finds fastest under the
    schedule; without a flush that of the fastest steady state. The naive equal split stands beside
    them. With --layers-per-stage nothing is searched: that split is judged, exported, written.
    """
    from unbubble.families import family
    from unbubble.files import expect_apart
    from unbubble.partition import even, fastest, partition, rank_loads, stage_costs
    from unbubble.simulate import simulate
    from unbubble.steady import bubble_fraction, makespan

    expect_apart({"-o": output}, [costs_path])
    p = shared.count(ranks, "p", "ranks")
    name = schedule or ("interleaved-1f1b" if (virtual or 1) > 1 else "1f1b")
    entry = family(name)
    if microbatches is None:
        microbatches = 1 if entry.name == "naive" else 4 * p
    m = shared.count(microbatches, "m", "microbatches", 8)
    rows = _rows(costs_path, layers)
    order = entry.generate(p, m, virtual)
    splits = order.splits_backward
    best = partition(rows, order.placement, split_backward=splits)

    def fitted(split: Sequence[int]) -> "Schedule":
        """The order for this split: some families adapt theirs to the costs."""
        return entry.fitted(p, m, virtual, costs_of=lambda _: stage_costs(rows, split))

    def judged(split: Sequence[int]) -> dict[str, Any]:
        loads = rank_loads(rows, order.placement, split, split_backward=splits)
        costs = stage_costs(rows, split)
        step = simulate(fitted(split), costs)
        return {
            "layers_per_stage": list(split),
            "loads": [load / rows.ticks_per_unit for load in loads],
            "bottleneck": max(loads) / rows.ticks_per_unit,
            "makespan": makespan(step, costs) / rows.ticks_per_unit,
            "bubble_fraction": bubble_fraction(step, costs),
        }

    if given is not None:
        chosen = shared.counts(given, "--layers-per-stage")
        if len(chosen) != order.num_stages or sum(chosen) != rows.num_stages:
            raise InputError(
                f"--layers-per-stage: {given} puts {sum(chosen)} layers on {len(chosen)} stages, "
                f"and {rows.num_stages} layers go to the {order.num_stages} stages of "
                f"{order.name}; {','.join(map(str, best.layers_per_stage))} would do"
            )
        objective = "given"
    elif objective == "bottleneck":
        chosen = best.layers_per_stage
    else:
        # found for the order of equal times; one fitted to the split may turn the tables
        found = (fastest(rows, order)[0], best.layers_per_stage)
        chosen = min(found, key=lambda split: judged(split)["makespan"])
    naive = judged(even(rows.num_stages, order.num_stages))
    answer = judged(chosen) | {
        "optimal_bottleneck": best.optimal_bottleneck / rows.ticks_per_unit,
        "proven": best.proven,
        "objective": objective,
        "schedule": order.name,
        "microbatches": m,
        "naive": naive,
        "exports": exports(chosen, rows, order.placement),
        "unit": rows.unit,
    }
    if output is not None:
        answer["predicted"] = _write(output, rows, fitted(chosen), chosen)
    if as_json:
        print_json(answer)
        return
    clock = Clock.suiting(max(naive["makespan"], answer["makespan"]), rows.unit)
    print_table(
        [
            {
                "split": label,
                clock.head("bottleneck"): clock.number(row["bottleneck"]),
                clock.head(f"{order.name} m={m}"): clock.number(row["makespan"]),
                "layers per stage": ",".join(map(str, row["layers_per_stage"])),
            }
            for label, row in (("naive", naive), ("given" if given else "chosen", answer))
        ]
    )
    bound = "the smallest possible bottleneck is" if best.proven else "no bottleneck is below"
    say(f"\n{bound} {clock.text(answer['optimal_bottleneck'])}")
    for framework, words in answer["exports"].items():
        click.echo(f"{framework}: {words}")  # to be copied: in one piece
    if output is not None:
        say(
            f"written to {output}; as it is run, with sends and receives, {order.name} m={m} takes "
            f"{clock.text(answer['predicted'])}"
        )


def _rows(path: str | None, layers: int | None) -> "Costs":
    """The layers of a costs file, or equal ones."""
    if (path is None) == (layers is None):
        raise InputError("give --costs FILE or --layers N, one of them")
    if path is not None:
        from unbubble.costs_file import load_costs

        return load_costs(path)
    from unbubble.costs import Costs, Duration, StageCosts

    if layers is None or not 1 <= layers <= 10_000:
        raise InputError(f"--layers is {layers}; it is from 1 to 10000")
    one = StageCosts(forward=Duration(1), backward_input=Duration(1), backward_weight=Duration(1))
    return Costs(stages=(one,) * layers)


def exports(split: Sequence[int], rows: "Costs", placement: "Placement") -> dict[str, str]:
    """The split in the words of frameworks that can take it.

    All of them place stages in rounds over the ranks, DeepSpeed and the offsets of MindFormers one
    stage a rank; none has copies of a stage.
    """
    from unbubble.schedule.placement import looping

    ranks = placement.ranks
    if placement != looping(ranks, max(1, len(split) // ranks)):
        return {}
    bounds = [0, *accumulate(split)]
    found = {"deepspeed": f"parts = {bounds}"} if len(split) == ranks else {}
    names = [row.name.lower() for row in rows.stages]
    alone = _layers_alone(names)
    tokens = ["t"] * len(names) if alone else _tokens(names, bounds)
    if tokens:
        stages = ["".join(tokens[a:b]) for a, b in pairwise(bounds)]
        if alone:  # the embedding and the loss join the ends
            stages[0] = f"E{stages[0]}"
            stages[-1] += "L"
        found["megatron"] = f'--pipeline-model-parallel-layout "{"|".join(map(_short, stages))}"'
    if alone and len(split) == ranks:
        share = rows.num_stages // ranks
        found["mindformers"] = f"offset = {[held - share for held in split]}"
    return found


_FRONT = re.compile(r"emb|wte|wpe|rotary|drop")
_LAST = re.compile(r"head|output|linear|logits|loss")
_BACK = re.compile(rf"{_LAST.pattern}|norm|\bln")
_PART = re.compile(rf"{_FRONT.pattern}|{_BACK.pattern}|attn|attention|mlp|ffn|mtp")


def _layers_alone(names: Sequence[str]) -> bool:
    """Whether rows are the layers of a model without its ends: all of one name, but for numbers."""
    return len({re.sub(r"\d+", "", name) for name in names}) == 1 and not _PART.search(names[0])


def _tokens(names: Sequence[str], bounds: Sequence[int]) -> list[str]:
    """Megatron's letters of rows, by their names: what is beside the embedding at the front and the
    head at the back goes with these and has none. Empty where the rows between are not whole
    layers, or a split has the parts of an end on several stages."""
    front = len(names) - len([*dropwhile(_FRONT.search, names)])
    back = len([*takewhile(_BACK.search, names[::-1])])
    layers, tail = names[front : len(names) - back], names[len(names) - back :]
    ends = front and any(map(_LAST.search, tail))
    together = bounds[1] >= front and bounds[-2] <= len(names) - back
    if not (layers and ends and together) or any(map(_PART.search, layers)):
        return []
    return ["E", *[""] * (front - 1), *["t"] * len(layers), *[""] * (back - 1), "L"]


def _short(stage: str) -> str:
    """Ettttt as Et*5."""
    held = stage.count("t")
    return stage.replace("t" * held, f"t*{held}") if held > 3 else stage


def _write(output: str, rows: "Costs", order: Any, split: Sequence[int]) -> Fraction:
    """Write the plan; its predicted makespan in the unit of the costs."""
    from unbubble.partition import stage_costs
    from unbubble.plan import Plan, Prediction, dump_plan
    from unbubble.prediction import predict
    from unbubble.steady import makespan

    costs = stage_costs(rows, split)
    step = predict(order, costs)
    predicted = makespan(step, costs)
    dump_plan(
        output,
        Plan(
            schedule=order,
            costs=costs,
            layers=rows,
            layers_per_stage=tuple(split),
            prediction=Prediction(
                makespan=round(predicted),
                span=step.span if order.flush else round(predicted),
            ),
        ),
    )
    return predicted / costs.ticks_per_unit
