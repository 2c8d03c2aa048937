"""ZB-2p: ZB-1p with twice the memory, which is enough for almost no bubble.

p=3 m=6, F=W=1 I=2            bubble by span 1 of 25 where ZB-H2 has 2 of 26
rank 0  0 1 2 3 4 5 . a a A b b B c c C d d D e e E f f F .
rank 1  . 0 1 2 . a a 3 b b 4 c c 5 d d A e e B f f C D E F
rank 2  . . 0 a a 1 b b 2 c c 3 d d 4 e e 5 f f A B C D E F

`memory` is the limit, in microbatches of a rank.
"""

from unbubble.costs import Costs
from unbubble.families.family import Family, Option
from unbubble.families.zb_1p import broken_rule, fitted
from unbubble.schedule.order import Schedule


def order(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """ZB-H2 for equal times; for given costs the shortest order found in the memory."""
    return fitted(ranks, microbatches, int(options.get("memory", 2 * ranks)), costs)


FAMILY = Family(
    name="zb-2p",
    summary="twice the memory of 1F1B, weight gradients placed for the given times",
    source="Zero Bubble, arXiv 2401.10241, section 3; the construction is this project's",
    bubble="at most (p−1)(F+I−2W) of time by span where m ≥ 2p−1 and W ≤ F, without transfers",
    memory="at most 2p microbatches on every rank, those whose W is to come counted by halves",
    order=order,
    broken_rule=broken_rule,
    options=("memory",),
    splits_backward=True,
    adapts=True,
)
