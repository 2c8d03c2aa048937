"""Interleaved zero bubble: interleaved 1F1B whose weight gradients fill the ends of the pipeline.

p=4 m=4 v=2, F=I=W=1            bubble 3/27 = 1/9; F, I, W those of a stage
rank 0  0 1 2 3 0 1 2 3 . . . a A b B c C d D a A b B c C d D
rank 1  . 0 1 2 3 0 1 2 . . a 3 b A c B d C a D b A c B d C D
rank 2  . . 0 1 2 3 0 1 . a 2 b 3 c A d B a C b D c A d B C D
rank 3  . . . 0 1 2 3 0 a 1 b 2 c 3 d A a B b C c D d A B C D

Splitting the backward sends the input gradient on early, so half the forwards ahead are enough;
rank r keeps r weight gradients back and runs them where it would wait at the end.
"""

from unbubble.action import Kind
from unbubble.costs import Costs
from unbubble.families.family import Family, Option
from unbubble.families.interleaved import broken_pytorch_rule, group_size, grouped
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import looping
from unbubble.schedule.weave import weave


def order(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """Rank r runs (v−1)g + p−1−r forwards ahead, then F and I in turn, and each W r turns later."""
    g = group_size(ranks, microbatches)
    rows = []
    for rank in range(ranks):
        stages = range(rank, ranks * virtual, ranks)
        forwards = grouped(Kind.F, stages, microbatches, g)
        inputs = grouped(Kind.I, stages[::-1], microbatches, g)
        weights = grouped(Kind.W, stages[::-1], microbatches, g)
        ahead = (virtual - 1) * g + ranks - 1 - rank
        rows.append(weave((forwards, 0), (inputs, ahead), (weights, ahead + rank)))
    return Schedule.of_codes(rows, looping(ranks, virtual))


def broken_rule(ranks: int, microbatches: int, virtual: int, **options: Option) -> str:
    return broken_pytorch_rule(ranks, microbatches)


FAMILY = Family(
    name="interleaved-zb",
    aliases=("ScheduleInterleavedZeroBubble", "InterleavedZeroBubble"),
    summary="interleaved 1F1B with the backward split, weight gradients fill the drain",
    source="torch.distributed.pipelining, after Zero Bubble, arXiv 2401.10241 (ZB-H1)",
    bubble="(p−1)(F+I−W)/v of time where m ≥ p and W ≤ F, I",
    memory="p microbatches on the fullest rank where g = p, at most m",
    order=order,
    needs="PyTorch: m a multiple of max(1, ⌊m/p⌋)",
    broken_rule=broken_rule,
    virtual=(2, None),
    placement=looping,
    splits_backward=True,
)
