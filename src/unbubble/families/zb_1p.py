"""ZB-1p: the memory of ZB-H1, the order made for the times at hand.

p=3 m=3, F=I=W=1 c=1            bubble 6 of 15 where ZB-H1 has 8 of 17
rank 0  0 1 2 . . . . . . a A b B c C
rank 1  . . 0 1 2 . . a . b . c A B C
rank 2  . . . . 0 a 1 b 2 c A B C . .

Each rank runs as many forwards ahead as keep it busy until its first gradient is back, if it may
hold them; then I and F take turns, and W runs where the rank would wait, where memory needs it, or
at the end. ZB-H1 (and with enough memory ZB-H2) is among the orders compared, so that it is never
longer than that.

`memory` is the limit, in microbatches of a rank.
"""

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import zb_h1, zb_h2
from unbubble.families.family import Family, Option
from unbubble.packing.ahead import orders
from unbubble.packing.filling import Frame, best, shortest
from unbubble.packing.memory import in_halves
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import linear


def order(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """ZB-H1 for equal times; for given costs the shortest order found in the memory."""
    return fitted(ranks, microbatches, int(options.get("memory", ranks)), costs)


def fitted(ranks: int, microbatches: int, room: int, costs: Costs | None) -> Schedule:
    """The shortest found of at most `room` microbatches a rank: of ZB-H1 and ZB-H2 where they fit,
    and of many numbers of forwards ahead, with W placed where a rank would wait."""
    placement = linear(ranks)
    costs = costs or Costs.uniform(placement)
    room = min(room, microbatches)
    memory = in_halves(placement, costs, room)
    frames = (
        Frame(rows, placement, costs, memory) for rows in orders(ranks, microbatches, room, costs)
    )
    found = [
        by_hand.order(ranks, microbatches, 1, costs=None)
        for by_hand, needed in ((zb_h1, ranks), (zb_h2, 2 * ranks - 1))
        if min(needed, microbatches) <= room
    ]
    return best((*found, shortest(frames).schedule()), costs)


def broken_rule(ranks: int, microbatches: int, virtual: int, **options: Option) -> str:
    memory = options.get("memory", 1)
    if not isinstance(memory, int) or memory < 1:
        raise InputError(f"memory is {memory!r}; it is a number of microbatches, at least 1")
    return ""


FAMILY = Family(
    name="zb-1p",
    summary="the memory of 1F1B, weight gradients placed for the given times",
    source="Zero Bubble, arXiv 2401.10241, section 3; the construction is this project's",
    bubble="at most (p−1)(F+I−W) of time where m ≥ p and W ≤ F, I, without transfers",
    memory="at most p microbatches on every rank, those whose W is to come counted by halves",
    order=order,
    broken_rule=broken_rule,
    options=("memory",),
    splits_backward=True,
    adapts=True,
)
