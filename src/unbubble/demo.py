"""The whole loop on this machine: profile, partition, compare, run, attribute, report.

Every stage leaves its files in one folder as soon as it is done, so that an interrupt keeps what
was found.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbubble.costs import Costs
from unbubble.costs_file import dump_costs
from unbubble.errors import InputError, RunError
from unbubble.families import generate
from unbubble.files import expect_writable, write_text
from unbubble.partition import even, improve, partition, stage_costs
from unbubble.plan import Plan, Prediction, dump_plan
from unbubble.prediction import as_pytorch_runs, lowered, predict
from unbubble.quantity import percent
from unbubble.report import scale, write
from unbubble.runtime.launch import Progress, crowding, need_torch
from unbubble.runtime.outcome import Outcome
from unbubble.runtime.profile import profile
from unbubble.runtime.run import Setup, run
from unbubble.schedule import Schedule, format_csv, parse_csv
from unbubble.simulate import Timeline
from unbubble.terminal import table, wrapped

TARGET = "unbubble.runtime.decoder:small"
NAIVE = "1f1b"
SCHEDULES = (
    "gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "interleaved-zb", "zb-h1", "zb-v",
    "dualpipe-v",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A schedule with a split of the layers, and the step that is predicted for them."""

    name: str
    schedule: Schedule
    layers_per_stage: tuple[int, ...]
    costs: Costs
    predicted: Timeline

    @property
    def predicted_s(self) -> float:
        return self.predicted.in_unit(self.predicted.makespan)

    def plan(self, layers: Costs, target: str) -> Plan:
        """What `unbubble run` needs to do it again."""
        return Plan(
            name=self.name,
            model=target,
            schedule=self.schedule,
            layers_per_stage=self.layers_per_stage,
            layers=layers,
            costs=self.costs,
            target="pytorch",
            prediction=Prediction(makespan=self.predicted.makespan, span=self.predicted.span),
        )


def demo(
    folder: Path,
    *,
    target: str = TARGET,
    ranks: int = 2,
    microbatches: int = 8,
    rounds: int = 10,
    steps: int = 10,
    say: Callable[[str], None] = print,
    on_progress: Progress = lambda line: None,
) -> dict[str, Any]:
    """Profile `target`, choose a plan, run it beside the naive one, and report both.

    Returns the figures that it told. Raises RunError if the gradients differ, InputError where
    PyTorch is missing.
    """
    need_torch()
    folder.mkdir(parents=True, exist_ok=True)
    expect_writable(folder / "costs.json")
    say(wrapped(f"profiling {target}: {rounds} rounds in {ranks} processes at once"))
    found = profile(target, processes=ranks, rounds=rounds, on_progress=on_progress)
    layers = found.costs
    dump_costs(
        folder / "costs.json",
        layers,
        rows="layers",
        notes=found.notes(target),
        row_notes=found.row_notes(),
    )
    say(f"{found.table()}\n")

    candidates = list(_candidates(layers, ranks, microbatches, folder))
    naive, chosen = candidates[0], min(candidates[1:], key=lambda c: c.predicted_s)
    say("\n".join([*_compared(candidates, chosen), ""]))
    dump_plan(folder / "naive.json", naive.plan(layers, target))
    dump_plan(folder / "chosen.json", chosen.plan(layers, target))

    say(wrapped(f"running both plans on {ranks} processes, {steps} steps each in turn"))
    if crowded := crowding(ranks):
        say(wrapped(crowded))
    pair = {"naive": naive, "chosen": chosen}
    setups = [Setup(lowered(c.schedule), c.layers_per_stage) for c in pair.values()]
    ran = run(setups, target, steps=steps, on_progress=on_progress)
    outcomes = {
        name: Outcome(predicted=candidate.predicted, measured=measured)
        for (name, candidate), measured in zip(pair.items(), ran, strict=True)
    }
    for name, outcome in outcomes.items():
        _report(folder, name, pair[name], outcome, target)
        about = f"{name}: {pair[name].schedule.name}, layers per stage {_split(pair[name])}"
        say("\n" + wrapped(about))
        say("\n".join(outcome.lines()))
    say("\n" + "\n".join(_verdict(pair, outcomes)))
    say("\n" + wrapped(f"the files are in {folder}/; open {folder}/chosen.html"))
    answer = _document(layers, candidates, pair, outcomes)
    for name, outcome in outcomes.items():
        if (gradients := outcome.measured.gradients) and not gradients.equal:
            raise RunError(
                f"the gradients of the {name} plan differ from those of one process by "
                f"{gradients.shown} in {gradients.parameter}; {gradients.blame}"
            )
    return answer


def _candidates(layers: Costs, ranks: int, microbatches: int, folder: Path) -> Iterator[Candidate]:
    """The naive plan, then every schedule with its best split, as read back from its own CSV."""
    orders = folder / "schedules"
    orders.mkdir(exist_ok=True)
    for number, name in enumerate((NAIVE, *SCHEDULES)):
        try:
            made = generate(name, ranks, microbatches)
            path = orders / f"{name}.csv"
            write_text(path, format_csv(made))
            schedule = parse_csv(path.read_text(), str(path), name=name)
            split = even(layers.num_stages, schedule.num_stages)
            if number:
                split = _fastest(layers, schedule, split)
        except InputError:
            if not number:
                raise
            continue  # not for these numbers of ranks, microbatches and layers
        costs = as_pytorch_runs(stage_costs(layers, split))
        yield Candidate(
            name=name if number else "naive",
            schedule=schedule,
            layers_per_stage=split,
            costs=costs,
            predicted=predict(schedule, costs),
        )


def _fastest(layers: Costs, schedule: Schedule, naive: tuple[int, ...]) -> tuple[int, ...]:
    """The split of least makespan near the one of least bottleneck and near the naive one."""

    order = lowered(schedule)

    def makespan(split: tuple[int, ...]) -> int:
        return predict(order, stage_costs(layers, split)).makespan

    balanced = partition(layers, schedule.placement, split_backward=schedule.splits_backward)
    starts = (balanced.layers_per_stage, naive)
    return min((improve(start, makespan) for start in starts), key=makespan)


def _compared(candidates: Sequence[Candidate], chosen: Candidate) -> list[str]:
    rows = [
        {
            "predicted on these costs": _title(candidate),
            "step ms": f"{1e3 * candidate.predicted_s:.1f}",
            "bubble": percent(candidate.predicted.bubble_fraction),
            "": "chosen" if candidate is chosen else "",
            "layers per stage": _split(candidate),
        }
        for candidate in candidates
    ]
    return table(rows)


def _title(candidate: Candidate) -> str:
    return f"naive ({NAIVE})" if candidate.name == "naive" else candidate.name


def _split(candidate: Candidate) -> str:
    return ",".join(map(str, candidate.layers_per_stage))


def _verdict(pair: dict[str, Candidate], outcomes: dict[str, Outcome]) -> list[str]:
    """The short table at the end."""
    rows = [
        {
            "plan": name,
            "schedule": pair[name].schedule.name,
            "layers": _split(pair[name]),
            "measured ms": f"{1e3 * outcome.step_s:.1f}",
            "predicted ms": f"{1e3 * outcome.predicted_s:.1f}",
            "error": percent(outcome.error, sign=True),
        }
        for name, outcome in outcomes.items()
    ]
    speed = outcomes["naive"].step_s / outcomes["chosen"].step_s
    promised = outcomes["naive"].predicted_s / outcomes["chosen"].predicted_s
    words = f"the chosen plan is {speed:.3f} times as fast; {promised:.3f} was predicted"
    return [*table(rows), wrapped(words)]


def _report(folder: Path, name: str, candidate: Candidate, outcome: Outcome, target: str) -> None:
    outcome.measured.save(folder / f"{name}.recording.json")
    write(
        outcome.predicted,
        measured=outcome.typical,
        svg=folder / f"{name}.svg",
        chrome=folder / f"{name}.trace.json",
        html=folder / f"{name}.html",
        title=f"unbubble demo: the {name} plan",
        facts=[
            ("model", target),
            ("schedule", candidate.schedule.name),
            ("layers per stage", _split(candidate)),
            ("predicted step", f"{1e3 * outcome.predicted_s:.1f} ms"),
            ("measured step, median of all", f"{1e3 * outcome.step_s:.1f} ms"),
            ("prediction against that median", scale.percent(outcome.error, sign=True)),
        ],
        costs=candidate.costs,
        attributions=[outcome.predicted_attribution, outcome.attribution],
        gradients=outcome.gradients,
    )


def _document(
    layers: Costs,
    candidates: Sequence[Candidate],
    pair: dict[str, Candidate],
    outcomes: dict[str, Outcome],
) -> dict[str, Any]:
    return {
        "unit": "s",
        "layers": layers.num_stages,
        "compared": [
            {
                "schedule": candidate.name,
                "layers_per_stage": list(candidate.layers_per_stage),
                "predicted_s": candidate.predicted_s,
                "bubble_fraction": float(candidate.predicted.bubble_fraction),
            }
            for candidate in candidates
        ],
        "runs": {
            name: outcome.document() | {"layers_per_stage": list(pair[name].layers_per_stage)}
            for name, outcome in outcomes.items()
        },
        "speedup": outcomes["naive"].step_s / outcomes["chosen"].step_s,
        "predicted_speedup": outcomes["naive"].predicted_s / outcomes["chosen"].predicted_s,
    }
