"""Prediction: the step that PyTorch's runtime will take, simulated with its sends and receives."""

from dataclasses import replace

from unbubble.costs import Costs, Duration
from unbubble.schedule import Schedule
from unbubble.schedule.lowering import lower
from unbubble.simulate import Timeline, simulate


def lowered(schedule: Schedule) -> Schedule:
    """The schedule with its sends and receives, the form that is run and simulated alike."""
    return schedule if schedule.with_comms else lower(schedule)


def predict(schedule: Schedule, costs: Costs) -> Timeline:
    """Simulate a schedule as PyTorch's runtime runs it, from the costs of its stages."""
    return simulate(lowered(schedule), as_pytorch_runs(costs))


def as_pytorch_runs(costs: Costs) -> Costs:
    """The costs with the first stage's backward as PyTorch's runtime splits it.

    The first stage has no input that needs a gradient: its I does nothing but be recorded, and its
    W is the full backward.
    """
    first = costs.stages[0]
    if first.full_backward is None:
        return costs
    split = replace(
        first,
        backward_input=Duration(),
        backward_weight=first.full_backward,
        backward=first.full_backward,
    )
    return replace(costs, stages=(split, *costs.stages[1:]))
