"""Naive: one microbatch, so that one rank works at a time.

p=4 m=1, F=B=1            bubble (p−1)/p = 3/4
rank 0  0 . . . . . . a
rank 1  . 0 . . . . a .
rank 2  . . 0 . . a . .
rank 3  . . . 0 a . . .

Some texts call GPipe naive (朴素); here naive is m = 1, the whole batch in one piece.
"""

from unbubble.action import Kind, pack
from unbubble.costs import Costs
from unbubble.families.family import Family, Option
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import linear
from unbubble.schedule.weave import array_of


def order(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """Every rank runs F0, then B0."""
    rows = [array_of([pack(Kind.F, r, 0), pack(Kind.B, r, 0)]) for r in range(ranks)]
    return Schedule.of_codes(rows, linear(ranks))


def broken_rule(ranks: int, microbatches: int, virtual: int, **options: Option) -> str:
    if microbatches == 1:
        return ""
    return "naive means that the batch is not cut into microbatches (with more it is gpipe)"


FAMILY = Family(
    name="naive",
    summary="the batch in one piece: one rank works at a time",
    source="GPipe, arXiv 1811.06965, figure 2b",
    bubble="(p−1)/p",
    memory="1 microbatch on every rank, which is the whole batch",
    order=order,
    needs="m = 1",
    broken_rule=broken_rule,
)
