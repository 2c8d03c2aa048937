"""Eager 1F1B: twice as many forwards ahead, so that activations travel while ranks compute.

p=4 m=8, F=B=1            bubble (p−1)/(m+p−1) = 3/11
rank 0  0 1 2 3 4 5 6 a 7 b . c . d . e . f . g . h
rank 1  . 0 1 2 3 4 a 5 b 6 c 7 d . e . f . g . h .
rank 2  . . 0 1 2 a 3 b 4 c 5 d 6 e 7 f . g . h . .
rank 3  . . . 0 a 1 b 2 c 3 d 4 e 5 f 6 g 7 h . . .

The same length as 1F1B where transfers are free. Where one takes c, 1F1B waits for it again and
again; here c up to (F+B)/2 is hidden but for the 2(p−1)c of fill and drain, for almost twice the
memory.
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
    """Rank r runs 2(p−1−r) forwards ahead, then F and B in turn."""
    m = microbatches
    rows = [
        weave((run(Kind.F, r, 0, m), 0), (run(Kind.B, r, 0, m), 2 * (ranks - 1 - r)))
        for r in range(ranks)
    ]
    return Schedule.of_codes(rows, linear(ranks))


FAMILY = Family(
    name="eager-1f1b",
    aliases=("1f1b-overlap-friendly",),
    summary="1F1B with twice the forwards ahead, which hides the transfers of activations",
    source="On Optimizing the Communication of Model Parallelism, arXiv 2211.05322",
    bubble="(p−1)/(m+p−1)",
    memory="min(2(p−r)−1, m) microbatches on rank r",
    order=order,
)
