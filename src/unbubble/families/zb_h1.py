"""ZB-H1: 1F1B with the backward split; weight gradients wait until a rank would wait anyway.

p=4 m=5, F=I=W=1            bubble (p−1)(F+I−W) = 3 of 18
rank 0  0 1 2 3 . . . a A 4 b B c C d D e E
rank 1  . 0 1 2 . . a 3 b A 4 c B d C e D E
rank 2  . . 0 1 . a 2 b 3 c A 4 d B e C D E
rank 3  . . . 0 a 1 b 2 c 3 d A 4 e B C D E

The input gradient goes on to the rank before at once, W behind it. Rank r keeps r weight gradients
back, as many as make its memory that of 1F1B's first rank, and runs them in the drain.
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
    """Rank r runs p−1−r forwards ahead, then F and I in turn, and each W r turns later."""
    rows = []
    for r in range(ranks):
        forwards, inputs, weights = (run(k, r, 0, microbatches) for k in (Kind.F, Kind.I, Kind.W))
        rows.append(weave((forwards, 0), (inputs, ranks - 1 - r), (weights, ranks - 1)))
    return Schedule.of_codes(rows, linear(ranks))


FAMILY = Family(
    name="zb-h1",
    summary="1F1B with the backward split: a third of its bubble in the same memory",
    source="Zero Bubble, arXiv 2401.10241, section 2",
    bubble="(p−1)(F+I−W) of time where m ≥ p and W ≤ F, I",
    memory="min(p, m) microbatches on the fullest rank, those whose W is to come counted by halves",
    order=order,
    splits_backward=True,
)
