"""unbubble takes the bubbles out of pipeline-parallel training: plan, run, explain.

Names are imported when first used, so that `import unbubble` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unbubble.action import Action, Kind
    from unbubble.attribution import Attribution, attribute
    from unbubble.costs import Costs, Duration, Edge, StageCosts
    from unbubble.errors import InputError, RunError, UnbubbleError
    from unbubble.schedule import Placement, Schedule, format_csv, parse_csv
    from unbubble.simulate import Deadlock, Timeline, simulate

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
    "Placement": "schedule",
    "RunError": "errors",
    "Schedule": "schedule",
    "StageCosts": "costs",
    "Timeline": "simulate",
    "UnbubbleError": "errors",
    "attribute": "attribution",
    "format_csv": "schedule",
    "parse_csv": "schedule",
    "simulate": "simulate",
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
    "Placement",
    "RunError",
    "Schedule",
    "StageCosts",
    "Timeline",
    "UnbubbleError",
    "attribute",
    "format_csv",
    "parse_csv",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'unbubble' has no attribute {name!r}")
    return getattr(import_module(f"unbubble.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
