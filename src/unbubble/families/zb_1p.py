"""ZB-1p: ZB-H1's memory, its weight gradients placed for the times at hand.

p=3 m=4, F=I=2 W=1            bubble TODO

"""

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import zb_h1
from unbubble.families.family import Family, Option
from unbubble.packing import ahead
from unbubble.packing.filling import Frame, shortest
from unbubble.packing.memory import in_halves
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import linear
from unbubble.simulate import simulate


def order(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    return fitted("zb-1p", ranks, microbatches, int(options.get("memory", ranks)), costs)


def fitted(
    name: str, ranks: int, microbatches: int, memory: int, costs: Costs | None
) -> Schedule:
    """The shortest by span of a few dozen orders that hold at most `memory` microbatches a rank."""
    placement = linear(ranks)
    costs = costs or Costs.uniform(placement)
    limit = in_halves(placement, costs, memory)
    return shortest(
        Frame(rows, placement, costs, limit)
        for rows in ahead.orders(ranks, microbatches, memory, costs)
    ).schedule(name)


FAMILY = Family(
    name="zb-1p",
    summary="",
    source="",
    bubble="",
    memory="",
    order=order,
    options=("memory",),
    splits_backward=True,
)
