"""V-Half: half of 1F1B's memory at half its bubble, on stages placed there and back.

p=4 m=5 v=2, F=I=W=1            bubble (6⌊(p−1)/2⌋ − 1)F; F, I, W those of a stage
rank 0  0 1 2 3 . . . 0 a 1 b A 2 B 4 a c A C 3 d b B D . 4 e c C d E D . e E
rank 1  . 0 1 2 3 . 0 . 1 a A 2 b B a 4 A c 3 C b d B D 4 . c e d C E D e E .
rank 2  . . 0 1 2 0 . 1 . 2 a A 3 a b A B 3 4 b c B d 4 C c C d e D D e E E .
rank 3  . . . 0 0 1 1 2 2 . . a a A 3 A 3 b b B 4 B 4 c c d d C C e e D D E E

A building block repeated every six slots: on the way there a microbatch spends two slots on each
rank, on the way back one, so that the two stages of a rank live equally long in sum on all ranks.
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
    """The block's slots; where p is even, a pause keeps the backward off the forward's slots."""
    p, pause = ranks, 0 if ranks % 2 else 3
    block = [
        Slots(2 * r, 3 * p - 2 - r, 3 * p - 1 + pause + 2 * r, 6 * p - 2 + pause - r)
        for r in range(p)
    ]
    placement = v_shape(p)
    rows, memory = repeat(block, microbatches), whole(placement, (p + 2) // 2)
    return fitted(rows, placement, memory, costs)


FAMILY = Family(
    name="v-half",
    summary="half of 1F1B's memory, on stages placed there and back",
    source="Pipeline Parallelism with Controllable Memory, arXiv 2405.15362",
    bubble="(6⌊(p−1)/2⌋ − 1)F of time for a stage's F = I = W, p > 2, m ≥ 2p",
    memory="⌊(p+2)/2⌋ microbatches on the fullest rank",
    order=order,
    virtual=(2,),
    placement=v_shape,
    splits_backward=True,
    adapts=True,
)
