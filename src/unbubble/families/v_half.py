"""V-Half"""

from unbubble.costs import Costs
from unbubble.families.family import Family, Option
from unbubble.packing.backfill import backfill, late_weights
from unbubble.packing.building_block import Slots, repeat
from unbubble.packing.filling import Frame, shortest
from unbubble.packing.memory import whole
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import v_shape


def order(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    p = ranks
    gap = 3 if p % 2 == 0 else 0
    block = [Slots(2 * r, 3 * p - 2 - r, 3 * p - 1 + gap + 2 * r, 6 * p - 2 + gap - r) for r in range(p)]
    return controlled(block, microbatches, (p + 2) // 2, costs, "v-half")


def controlled(block, microbatches, limit, costs, name):
    placement = v_shape(len(block))
    costs = costs or Costs.uniform(placement)
    memory = whole(placement, limit)
    rows = late_weights(repeat(block, microbatches), placement, memory)
    rows = backfill(Schedule.of_codes(rows, placement), costs, memory)
    return Schedule.of_codes(rows, placement, name=name)


FAMILY = Family(
    name="v-half",
    summary="",
    source="",
    bubble="",
    memory="",
    order=order,
    virtual=(2,),
    placement=v_shape,
    splits_backward=True,
)
