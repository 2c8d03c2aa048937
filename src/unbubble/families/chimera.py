"""Chimera: two 1F1B pipelines in opposite directions on two copies of the model.

p=4 m=4, F=B=1            bubble (p−2)/(2m+p−2) = 1/5
rank 0  0 1 . 2 c 3 d a . b
rank 1  . 0 2 1 3 c a d b .
rank 2  . 2 0 3 1 a c b d .
rank 3  2 3 . 0 a 1 b c . d

The second copy of stage s is stage p+s on rank p−1−s. Of every p microbatches the first half goes
down the first copy, the second half up the second copy, each like 1F1B; p being even, their times
never meet. Further units of p microbatches follow at once; each costs another (p−2)|B−F| of idle
time, so nothing where F = B.
"""

from array import array

from unbubble.action import Kind
from unbubble.costs import Costs
from unbubble.families.family import Family, Option
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import bidirectional
from unbubble.schedule.weave import run


def order(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """Every rank runs what the timetable for F = B = 1 says, in its order."""
    rows = [timetable(ranks, microbatches, rank) for rank in range(ranks)]
    return Schedule.of_codes(
        [array("q", filter(None, slots)) for slots in rows], bidirectional(ranks)
    )


def timetable(ranks: int, microbatches: int, rank: int) -> "array[int]":
    """What the rank runs in each slot of length F = B = 1; 0 where it idles.

    The i-th microbatch of a direction passes stage s of p at s + 2i, and backwards at
    2p − 1 − s + 2i; a unit of p microbatches begins every 2p slots.
    """
    units = -(-microbatches // ranks)
    slots = array("q", bytes(8 * (2 * ranks * units + ranks - 2)))
    for unit in range(units):
        first = unit * ranks
        count = min(ranks, microbatches - first)
        middle = first + (count + 1) // 2
        directions = ((0, rank, first, middle), (ranks, ranks - 1 - rank, middle, first + count))
        for copy, stage, start, stop in directions:
            for kind, slot in ((Kind.F, stage), (Kind.B, 2 * ranks - 1 - stage)):
                at = 2 * first + slot
                codes = array("q", run(kind, copy + stage, start, stop))
                slots[at : at + 2 * (stop - start) : 2] = codes
    return slots


def broken_rule(ranks: int, microbatches: int, virtual: int, **options: Option) -> str:
    return "Chimera's rule is that p is even" if ranks % 2 else ""


FAMILY = Family(
    name="chimera",
    summary="two 1F1B pipelines in opposite directions on two copies of the model",
    source="Chimera, arXiv 2107.06925",
    bubble="at m = p: (p−2)/(2m+p−2) where B = F, (p−2)/(3m/2+p−2) where B = 2F",
    memory="p/2+1 microbatches at the ends … p in the middle, and two copies of the parameters",
    order=order,
    needs="p even",
    broken_rule=broken_rule,
    placement=lambda ranks, virtual: bidirectional(ranks),
)
