"""GPipe: all forwards, then all backwards.

p=4 m=4, F=B=1            bubble (p−1)/(m+p−1) = 3/7
rank 0  0 1 2 3 . . . . . . a b c d
rank 1  . 0 1 2 3 . . . . a b c d .
rank 2  . . 0 1 2 3 . . a b c d . .
rank 3  . . . 0 1 2 3 a b c d . . .

The price is memory: every rank holds all m microbatches at once.
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
    """Every rank runs F0 … F(m−1), then B0 … B(m−1)."""
    m = microbatches
    rows = [weave((run(Kind.F, r, 0, m), 0), (run(Kind.B, r, 0, m), m)) for r in range(ranks)]
    return Schedule.of_codes(rows, linear(ranks))


FAMILY = Family(
    name="gpipe",
    aliases=("ScheduleGPipe",),
    summary="all forwards, then all backwards",
    source="GPipe, arXiv 1811.06965",
    bubble="(p−1)/(m+p−1)",
    memory="m microbatches on every rank",
    order=order,
)
