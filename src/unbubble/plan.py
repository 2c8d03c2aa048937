"""Plan: what a run needs to be repeated, and its file, versioned JSON.

    {"unbubble_plan": 1, "name": "chosen", "model": "decoder:tiny",
     "layers_per_stage": [5, 5], "layers": {…a costs file with a row a layer…},
     "schedule": {"name": "1f1b", "rank_of": [0, 1], "rows": ["0F0,0F1,0B0,0B1", "1F0,…"]},
     "costs": {…a costs file with a row a stage…},
     "batch": {"samples": 4, "dp": 1, "phases": [{"name": "train", "microbatches": 2}]},
     "parallel": {"tp": 1}, "recompute": ["none", "full"], "sharding": ["none", "none"],
     "target": "pytorch", "prediction": {"makespan": 41.5, "span": 40.25}}

Keys at their default are left out; `notes` are not read.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unbubble.costs import Costs
from unbubble.costs_file import Clock, costs_document, costs_of
from unbubble.document import Value, load
from unbubble.document import parse as parse_document
from unbubble.errors import InputError
from unbubble.files import write_text
from unbubble.footprint import RECOMPUTE
from unbubble.partition import stage_costs
from unbubble.schedule import Schedule
from unbubble.schedule.document import MAX_COUNT, schedule_document, schedule_of

WHAT = "a plan file"
VERSION = 1
SHARDING = ("none", "zero1", "zero2", "zero3")
PARALLEL = ("tp", "cp", "ep", "etp")
OPTIONAL = (
    "name", "model", "layers", "layers_per_stage", "costs", "batch", "parallel", "recompute",
    "sharding", "target", "prediction", "notes",
)  # fmt: skip


@dataclass(frozen=True)
class Phase:
    """A part of the job with its own number of microbatches a step: ramp-up, training, evaluation.
    `samples` a microbatch are those of the batch where 0."""

    name: str
    microbatches: int
    samples: int = 0


@dataclass(frozen=True, kw_only=True)
class Batch:
    """`samples` in a microbatch (b), data-parallel replicas (dp), and the further phases."""

    samples: int = 1
    dp: int = 1
    phases: tuple[Phase, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the simulation said, in ticks of the plan's costs."""

    makespan: int
    span: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A schedule and the costs of its stages, with everything that a run needs beside them.

    `layers` are the costs of single layers, `layers_per_stage` how the stages hold them. `parallel`
    are the sizes beside the pipeline's and dp; `recompute` and `sharding` go by stage (RECOMPUTE,
    SHARDING), empty where nothing is said. `target` names the framework.
    """

    schedule: Schedule
    costs: Costs
    name: str = ""
    model: str = ""
    layers: Costs | None = None
    layers_per_stage: tuple[int, ...] = ()
    batch: Batch = Batch()
    parallel: dict[str, int] = field(default_factory=dict)
    recompute: tuple[str, ...] = ()
    sharding: tuple[str, ...] = ()
    target: str = ""
    prediction: Prediction | None = None

    def __post_init__(self) -> None:
        stages = self.schedule.num_stages
        by_stage = {
            "costs": self.costs.stages,
            "layers_per_stage": self.layers_per_stage,
            "recompute": self.recompute,
            "sharding": self.sharding,
        }
        for what, rows in by_stage.items():
            if len(rows) != stages and (rows or what == "costs"):
                raise InputError(f"{what} has {len(rows)} stages and the schedule {stages}")
        if self.layers is not None and sum(self.layers_per_stage) != self.layers.num_stages:
            raise InputError(
                f"layers_per_stage holds {sum(self.layers_per_stage)} layers and there are "
                f"{self.layers.num_stages}; every layer is on one stage"
            )

    @property
    def microbatches(self) -> int:
        """m, those of the schedule."""
        return self.schedule.microbatches

    @property
    def global_batch(self) -> int:
        """Samples in a step: dp × b × m."""
        return self.batch.dp * self.batch.samples * self.microbatches


def load_plan(path: str | Path) -> Plan:
    """The plan in a file.

    Raises InputError that names the file, the key, the value and the rule.
    """
    return _plan(load(path, WHAT))


def parse_plan(text: str, source: str = "plan") -> Plan:
    """The plan in a text; `source` stands for the file in messages."""
    return _plan(parse_document(text, source, WHAT))


def dump_plan(path: str | Path, plan: Plan) -> None:
    """Write a plan file, all of it or nothing; `load_plan` reads it back equal."""
    write_text(path, format_plan(plan))


def format_plan(plan: Plan) -> str:
    """The text of a plan file."""
    import json

    texts = {key: getattr(plan, key) for key in ("name", "model", "target")}
    lists = {key: list(getattr(plan, key)) for key in ("layers_per_stage", "recompute", "sharding")}
    document: dict[str, Any] = {"unbubble_plan": VERSION}
    document |= {key: value for key, value in (texts | lists).items() if value}
    if plan.layers is not None:
        document["layers"] = costs_document(plan.layers, rows="layers")
    document["schedule"] = schedule_document(plan.schedule)
    document["costs"] = costs_document(plan.costs)
    if plan.batch != Batch():
        document["batch"] = {
            "samples": plan.batch.samples,
            "dp": plan.batch.dp,
            "phases": [vars(phase) for phase in plan.batch.phases],
        }
    if plan.parallel:
        document["parallel"] = plan.parallel
    if plan.prediction is not None:
        clock = Clock.of(plan.costs)
        document["prediction"] = {
            key: clock.written(ticks) for key, ticks in vars(plan.prediction).items()
        }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _plan(document: Value) -> Plan:
    keys = document.table(OPTIONAL, ["unbubble_plan", "schedule"])
    version = keys["unbubble_plan"].integer(1)
    if version != VERSION:
        raise document.error(f"the plan has version {version} and this unbubble reads {VERSION}")
    settings: dict[str, Any] = {
        key: keys[key].text() for key in ("name", "model", "target") if key in keys
    }
    if "layers_per_stage" in keys:
        counts = keys["layers_per_stage"].items()
        settings["layers_per_stage"] = tuple(n.integer(1, MAX_COUNT) for n in counts)
    for key, choices in (("recompute", RECOMPUTE), ("sharding", SHARDING)):
        if key in keys:
            settings[key] = tuple(value.text(choices) for value in keys[key].items())
    if "parallel" in keys:
        sizes = keys["parallel"].table(PARALLEL)
        settings["parallel"] = {key: n.integer(1, MAX_COUNT) for key, n in sizes.items()}
    if "batch" in keys:
        settings["batch"] = _batch(keys["batch"])
    if "layers" in keys:
        settings["layers"] = costs_of(keys["layers"])
    try:
        costs = _costs(document, keys, settings)
        if "prediction" in keys:
            times = keys["prediction"].table((), ["makespan", "span"])
            clock = Clock.of(costs)
            settings["prediction"] = Prediction(**{k: clock.read(t) for k, t in times.items()})
        return Plan(schedule=schedule_of(keys["schedule"]), costs=costs, **settings)
    except InputError as error:
        if str(error).startswith(document.path):
            raise
        raise document.error(str(error)) from None


def _costs(document: Value, keys: dict[str, Value], settings: dict[str, Any]) -> Costs:
    """The costs of the stages: their own, or those of their layers."""
    if "costs" in keys:
        return costs_of(keys["costs"])
    if "layers" not in settings or "layers_per_stage" not in settings:
        raise document.error("a plan has costs, or layers and layers_per_stage to add up")
    return stage_costs(settings["layers"], settings["layers_per_stage"])


def _batch(value: Value) -> Batch:
    keys = value.table(("samples", "dp", "phases"))
    phases = []
    for row in keys["phases"].items() if "phases" in keys else []:
        phase = row.table(("samples",), ("name", "microbatches"))
        phases.append(
            Phase(
                phase["name"].text(),
                phase["microbatches"].integer(1, MAX_COUNT),
                phase["samples"].integer(0, MAX_COUNT) if "samples" in phase else 0,
            )
        )
    sizes = {key: keys[key].integer(1, MAX_COUNT) for key in ("samples", "dp") if key in keys}
    return Batch(**sizes, phases=tuple(phases))
