"""ZB-H2: twice the memory of ZB-H1 buys a pipeline without a bubble, where F = I = W.

p=4 m=7, F=I=W=1            bubble by span (p−1)(F+I−2W) = 0
rank 0  0 1 2 3 4 5 6 a A b B c C d D e E f F g G . . .
rank 1  . 0 1 2 3 4 a 5 b 6 c A d B e C f D g E F G . .
rank 2  . . 0 1 2 a 3 b 4 c 5 d 6 e A f B g C D E F G .
rank 3  . . . 0 a 1 b 2 c 3 d 4 e 5 f 6 g A B C D E F G

Every rank is busy from its first forward to its last weight gradient, but rank r starts and ends r
later: the bubble is gone by span, for steps whose optimizer need not wait for all ranks.
"""

from unbubble.action import Kind
from unbubble.costs import Costs
from unbubble.families.family import Family, Option
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import linear
from unbubble.schedule.weave import run, weave


def order(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """Rank r runs 2(p−1−r) forwards ahead, then F and I in turn, and each W 2r turns later."""
    rows = []
    for r in range(ranks):
        forwards, inputs, weights = (run(k, r, 0, microbatches) for k in (Kind.F, Kind.I, Kind.W))
        rows.append(weave((forwards, 0), (inputs, 2 * (ranks - 1 - r)), (weights, 2 * (ranks - 1))))
    return Schedule.of_codes(rows, linear(ranks))


FAMILY = Family(
    name="zb-h2",
    summary="ZB-H1 with twice the memory: no bubble by span where F = I = W",
    source="Zero Bubble, arXiv 2401.10241, section 2",
    bubble="(p−1)(F+I−2W) of time by span where m ≥ 2p−1 and W ≤ F",
    memory="min(2p−1, m) microbatches on rank 0",
    order=order,
    splits_backward=True,
)
