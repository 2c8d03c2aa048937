"""unbubble takes the bubbles out of pipeline-parallel training: plan, run, explain.

Names are imported when first used, so that `import unbubble` costs next to nothing.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unbubble.action import Action, Kind
    from unbubble.attribution import Attribution, attribute
    from unbubble.costs import Costs, Duration, Edge, StageCosts
    from unbubble.costs_file import dump_costs, load_costs
    from unbubble.errors import InputError, RunError, UnbubbleError
    from unbubble.families import generate
    from unbubble.partition import Partition, fastest, partition, stage_costs
    from unbubble.plan import Plan, dump_plan, load_plan
    from unbubble.prediction import predict
    from unbubble.runtime.profile import profile
    from unbubble.runtime.record import record
    from unbubble.runtime.run import Setup, run
    from unbubble.runtime.workload import Workload
    from unbubble.schedule import Placement, Schedule, format_csv, parse_csv
    from unbubble.schedule.check import check
    from unbubble.schedule.lowering import lower
    from unbubble.simulate import Deadlock, Timeline, simulate
    from unbubble.simulate.critical import critical_path
    from unbubble.simulate.jitter import jittered
    from unbubble.simulate.whatif import what_ifs
    from unbubble.trace import Trace, read_trace
    from unbubble.trace.costs import observed_costs
    from unbubble.trace.findings import findings

__version__ = "0.1.0"

_HOME = {
    "Action": "action",
    "Attribution": "attribution",
    "Costs": "costs",
    "Deadlock": "simulate",
    "Duration": "costs",
    "Edge": "costs",
    "InputError": "errors",
    "Kind": "action",
    "Partition": "partition",
    "Placement": "schedule",
    "Plan": "plan",
    "RunError": "errors",
    "Schedule": "schedule",
    "Setup": "runtime.run",
    "StageCosts": "costs",
    "Timeline": "simulate",
    "Trace": "trace",
    "UnbubbleError": "errors",
    "Workload": "runtime.workload",
    "attribute": "attribution",
    "check": "schedule.check",
    "critical_path": "simulate.critical",
    "dump_costs": "costs_file",
    "dump_plan": "plan",
    "fastest": "partition",
    "findings": "trace.findings",
    "format_csv": "schedule",
    "generate": "families",
    "jittered": "simulate.jitter",
    "load_costs": "costs_file",
    "load_plan": "plan",
    "lower": "schedule.lowering",
    "observed_costs": "trace.costs",
    "parse_csv": "schedule",
    "partition": "partition",
    "predict": "prediction",
    "profile": "runtime.profile",
    "read_trace": "trace",
    "record": "runtime.record",
    "run": "runtime.run",
    "simulate": "simulate",
    "stage_costs": "partition",
    "what_ifs": "simulate.whatif",
}

__all__ = [
    "Action",
    "Attribution",
    "Costs",
    "Deadlock",
    "Duration",
    "Edge",
    "InputError",
    "Kind",
    "Partition",
    "Placement",
    "Plan",
    "RunError",
    "Schedule",
    "Setup",
    "StageCosts",
    "Timeline",
    "Trace",
    "UnbubbleError",
    "Workload",
    "attribute",
    "check",
    "critical_path",
    "dump_costs",
    "dump_plan",
    "fastest",
    "findings",
    "format_csv",
    "generate",
    "jittered",
    "load_costs",
    "load_plan",
    "lower",
    "observed_costs",
    "parse_csv",
    "partition",
    "predict",
    "profile",
    "read_trace",
    "record",
    "run",
    "simulate",
    "stage_costs",
    "what_ifs",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'unbubble' has no attribute {name!r}")
    return getattr(import_module(f"unbubble.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """`unbubble.simulate` is the function, also after the package of that name was imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
