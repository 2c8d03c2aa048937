"""1F1B with a flush (PipeDream-Flush): as soon as a backward can run, one follows each forward.

p=4 m=4, F=B=1            bubble (p−1)/(m+p−1) = 3/7
rank 0  0 1 2 3 . . . a . b . c . d
rank 1  . 0 1 2 . . a 3 b . c . d .
rank 2  . . 0 1 . a 2 b 3 c . d . .
rank 3  . . . 0 a 1 b 2 c 3 d . . .

As long as GPipe, but a rank holds no more microbatches than there are ranks from it to the end.
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
    """Rank r runs p−1−r forwards ahead (all of them where m is less), then F and B in turn."""
    m = microbatches
    rows = [
        weave((run(Kind.F, r, 0, m), 0), (run(Kind.B, r, 0, m), ranks - 1 - r))
        for r in range(ranks)
    ]
    return Schedule.of_codes(rows, linear(ranks))


FAMILY = Family(
    name="1f1b",
    aliases=("Schedule1F1B", "PipeDream-Flush", "one-f-one-b"),
    summary="one forward, one backward in turn, drained at the end of the step",
    source="PipeDream-2BW, arXiv 2006.09503; Megatron-LM, arXiv 2104.04473",
    bubble="(p−1)/(m+p−1)",
    memory="min(p−r, m) microbatches on rank r",
    order=order,
)
