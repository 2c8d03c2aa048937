"""ZB-V: zero bubble in the memory of 1F1B, on stages placed there and back.

zb-v p=3 m=6 v=2, F=I=W=1            bubble 0 by span; F, I, W those of a stage
rank 0  0 1 2 3 4 0 a A 1 b B 2 c C 5 a A 3 d D b B 4 e E c C 5 f F d D e E f F . .
rank 1  . 0 1 2 0 3 1 a A 2 b B 4 a A 3 c C 5 b B 4 d D c C 5 e E d f e D f E F F .
rank 2  . . 0 0 1 1 2 2 a A 3 a A 3 b B 4 b B 4 c C 5 c C 5 d D d e e f f D E F E F

Rank r holds stages r and 2p−1−r, so the backward of the first microbatch begins on rank 0, which
filled first, and all ranks begin and end alike. `zbv-zero-bubble` is this order, PyTorch's, for any
times; `zb-v` moves the W where that shortens the span for the given times:

zbv-zero-bubble p=2 m=3 v=2, F=I=2 W=1            2 of 32 by span
rank 0  0 0 1 1 2 2 0 0 a a A 1 1 b b B . a a A 2 2 c c C b b B . c c C
rank 1  . . 0 0 0 0 1 1 1 1 a a A 2 2 a a A 2 2 b b B b b c c c c B C C

zb-v p=2 m=3 v=2, F=I=2 W=1            1 of 31
rank 0  0 0 1 1 2 2 0 0 a a A 1 1 b b B . a a A 2 2 c c b b C B c c C .
rank 1  . . 0 0 0 0 1 1 1 1 a a A 2 2 a a A 2 2 b b b b c c c c B B C C
"""

from array import array
from collections.abc import Iterator
from itertools import islice

from unbubble.action import Kind, pack
from unbubble.costs import Costs
from unbubble.families.family import Family, Option
from unbubble.packing.fitting import fitted
from unbubble.packing.memory import whole
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import v_shape
from unbubble.schedule.weave import array_of, in_turn, run


def zb_v(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """PyTorch's order; where costs are given, W placed for them if that is shorter."""
    rows, placement = rows_of(ranks, microbatches), v_shape(ranks)
    schedule = Schedule.of_codes(rows, placement)
    if costs is None:
        return schedule
    return fitted(rows, placement, whole(placement, ranks), costs, schedule)


def zbv_zero_bubble(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """PyTorch's order, best where F = I = W."""
    return Schedule.of_codes(rows_of(ranks, microbatches), v_shape(ranks))


def rows_of(ranks: int, microbatches: int) -> list["array[int]"]:
    """Every rank's order; of fewer than 2p−1 microbatches, what is left of that of 2p−1."""
    beyond = pack(0, 0, microbatches)
    rows = (row(ranks, rank, max(microbatches, 2 * ranks - 1)) for rank in range(ranks))
    return [array("q", [code for code in codes if code < beyond]) for codes in rows]


def row(ranks: int, rank: int, microbatches: int) -> "array[int]":
    """Rank r's order for at least 2p−1 microbatches; stage 0 is its first, 1 its second."""
    first, second = rank, 2 * ranks - 1 - rank
    f0, i0, w0 = (iter(run(k, first, 0, microbatches)) for k in (Kind.F, Kind.I, Kind.W))
    f1, i1, w1 = (iter(run(k, second, 0, microbatches)) for k in (Kind.F, Kind.I, Kind.W))
    n = ranks - rank
    steady = microbatches - (2 * ranks - 1 - rank)

    # fill: down the V, then both ways in turn, then as backwards arrive
    order = take(f0, 2 * n - 1)
    order += in_turn(take(f1, rank), take(f0, rank))
    order += in_turn(take(f1, n), take(i1, n), take(w1, n))
    # steady: the first stage's forward, its backward, and the second's
    order += in_turn(*(take(lane, steady) for lane in (f0, i0, w0, f1, i1, w1)))
    order += in_turn(*(take(lane, n - 1) for lane in (i0, w0, f1, i1, w1)))
    # drain: input gradients first, the weight gradients fill the rest
    order += in_turn(take(i0, rank), take(i1, rank))
    order += in_turn(take(i0, n), take(w0, n))
    return order + array_of(w1, w0)


def take(lane: Iterator[int], count: int) -> "array[int]":
    """The next `count` codes of a lane."""
    return array("q", islice(lane, count))


FAMILIES = (
    Family(
        name="zb-v",
        summary="zero bubble in 1F1B's memory, on stages placed there and back",
        source="Zero Bubble, arXiv 2401.10241, section 6",
        bubble="0 by span where F = I = W",
        memory="min(p, m) microbatches on the fullest rank",
        order=zb_v,
        virtual=(2,),
        placement=v_shape,
        splits_backward=True,
        adapts=True,
    ),
    Family(
        name="zbv-zero-bubble",
        aliases=("ScheduleZBVZeroBubble",),
        summary="ZB-V in the order of PyTorch, whatever the costs",
        source="torch.distributed.pipelining, after Zero Bubble, arXiv 2401.10241, section 6",
        bubble="0 by span where F = I = W",
        memory="min(p, m) microbatches on the fullest rank",
        order=zbv_zero_bubble,
        virtual=(2,),
        placement=v_shape,
        splits_backward=True,
    ),
)
