"""Prediction: the step that PyTorch's runtime will take, simulated with its sends and receives.

Every prediction of a plan is this one, wherever it is shown, as a run is measured in the same form:

    simulate(order, costs)   each transfer is a latency between two actions
    predict(order, costs)    each has a send and a receive, with the time that they take of their
                             ranks, and starts at the later of the two
"""

from dataclasses import replace

from unbubble.costs import Costs, Duration
from unbubble.errors import InputError
from unbubble.schedule import Schedule
from unbubble.schedule.lowering import lower
from unbubble.simulate import Timeline, simulate


def predict(schedule: Schedule, costs: Costs) -> Timeline:
    """Simulate a schedule as PyTorch's runtime runs it, from the costs of its stages.

    Raises InputError where the costs do not fit, `Deadlock` where the order cannot finish.
    """
    return simulate(*as_run(schedule, costs))


def as_run(schedule: Schedule, costs: Costs) -> tuple[Schedule, Costs]:
    """The order and the costs that `predict` simulates: both as PyTorch's runtime has them.

    What it cannot run (copies of stages, no flush) stays as it is.
    """
    if not schedule.flush or schedule.placement.copies > 1:
        return schedule, costs
    try:
        return lowered(schedule), as_pytorch_runs(costs)
    except InputError:
        simulate(schedule, costs)  # it says exactly where an order cannot finish
        raise


def lowered(schedule: Schedule) -> Schedule:
    """The schedule with its sends and receives, the form that is run and simulated alike."""
    return schedule if schedule.with_comms else lower(schedule)


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
