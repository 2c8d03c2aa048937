"""V-Min: a third of 1F1B's memory, on stages placed there and back.

p=4 m=5 v=2, F=I=W=1            bubble (4p−5)F; F, I, W those of a stage
rank 0  0 1 2 . . . . 0 a A 1 b B 3 . a A . . 2 c b C 4 B 3 d c D C . 4 e d E D . . . e E
rank 1  . 0 1 . . . 0 . 1 a A 2 b . a A B 3 2 . b c B C 3 4 c d C D 4 . d e D E . . e E .
rank 2  . . 0 1 . 0 . 1 . . a A 2 a b A B 2 3 b B . c 3 C c 4 C d 4 D d D . e E . e E . .
rank 3  . . . 0 0 1 1 . . . . a a A 2 A 2 b b B 3 B 3 c c C C 4 4 d d D D . . e e E E . .

A building block repeated every six slots, its actions as close together as the dependencies allow,
so that activations live as briefly as they can. Times other than F = I = W open more bubbles in it
than in V-Half, because there is no slack between the actions.
"""

from unbubble.costs import Costs
from unbubble.families.family import Family, Option
from unbubble.packing.building_block import Slots, repeat
from unbubble.packing.fitting import fitted
from unbubble.packing.memory import whole
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import v_shape


def order(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """The block's slots; where 3 divides p, a pause keeps the backward off the forward's slots."""
    p, pause = ranks, 0 if ranks % 3 else 2
    block = [Slots(r, 2 * p - 1 - r, 2 * p + pause + r, 4 * p - 1 + pause - r) for r in range(p)]
    placement = v_shape(p)
    rows, memory = repeat(block, microbatches), whole(placement, (p + 4) // 3)
    return fitted(rows, placement, memory, costs)


FAMILY = Family(
    name="v-min",
    summary="a third of 1F1B's memory, on stages placed there and back",
    source="Pipeline Parallelism with Controllable Memory, arXiv 2405.15362",
    bubble="(4p−5)F of time for a stage's F = I = W where p mod 3 = 1, else (4p−7)F; m ≥ 2p > 2",
    memory="⌊(p+4)/3⌋ microbatches on the fullest rank",
    order=order,
    virtual=(2,),
    placement=v_shape,
    splits_backward=True,
    adapts=True,
)
