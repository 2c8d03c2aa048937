"""Interleaved 1F1B: v smaller stages a rank, in rounds, so that the pipeline fills v times faster.

p=4 m=8 v=2, F=B=1            bubble (p−1)/(vm+p−1) = 3/19; F, B those of a stage
rank 0  0 1 2 3 0 1 2 3 4 5 6 a 7 b . . 4 c 5 d 6 a 7 b c d . e . f . g . h e f g h
rank 1  . 0 1 2 3 0 1 2 3 4 a 5 b 6 c 7 d 4 a 5 b 6 c 7 d . e . f . g . h e f g h .
rank 2  . . 0 1 2 3 0 1 2 a 3 b 4 c 5 d 6 a 7 b 4 c 5 d 6 e 7 f . g . h e f g h . .
rank 3  . . . 0 1 2 3 0 a 1 b 2 c 3 d 4 a 5 b 6 c 7 d 4 e 5 f 6 g 7 h e f g h . . .

Microbatches go in groups of g: a rank runs a group through its first stage, then through its
second, and so on, and backwards the other way round. Two rules say what g may be:

PyTorch    rounds = max(1, ⌊m/p⌋) equal groups: m must be a multiple of the rounds
Megatron   g from p to m (p where it is not given), the last group smaller: m mod g is 0 or ≥ p

Where p divides m both give the same order. PyTorch's is the default; a `group` means Megatron's, as
in `interleaved-1f1b:group=8`.
"""

from array import array

from unbubble.action import Kind
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families.family import Family, Option
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import looping
from unbubble.schedule.weave import array_of, run, weave

RULES = ("pytorch", "megatron")


def order(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """Rank r runs (v−1)g + 2(p−1−r) forwards ahead, then F and B in turn."""
    g = group_size(ranks, microbatches, **options)
    rows = []
    for rank in range(ranks):
        stages = range(rank, ranks * virtual, ranks)
        forwards = grouped(Kind.F, stages, microbatches, g)
        backwards = grouped(Kind.B, stages[::-1], microbatches, g)
        ahead = (virtual - 1) * g + 2 * (ranks - 1 - rank)
        rows.append(weave((forwards, 0), (backwards, ahead)))
    return Schedule.of_codes(rows, looping(ranks, virtual))


def grouped(kind: int, stages: range, microbatches: int, group: int) -> "array[int]":
    """Group by group, every stage in turn."""
    starts = range(0, microbatches, group)
    return array_of(
        *(
            run(kind, stage, start, min(start + group, microbatches))
            for start in starts
            for stage in stages
        )
    )


def group_size(ranks: int, microbatches: int, **options: Option) -> int:
    """g by the rule that the options name, legal or not."""
    if options.get("rule", "megatron" if "group" in options else "pytorch") == "megatron":
        return int(options.get("group", ranks))
    return microbatches // rounds(ranks, microbatches)


def rounds(ranks: int, microbatches: int) -> int:
    """PyTorch's number of equal groups."""
    return max(1, microbatches // ranks)


def broken_pytorch_rule(ranks: int, microbatches: int) -> str:
    """PyTorch's rule for its interleaved schedules."""
    n = rounds(ranks, microbatches)
    if microbatches % n == 0:
        return ""
    return f"PyTorch's rule is that m is a multiple of its rounds, max(1, ⌊m/p⌋) = {n}"


def broken_megatron_rule(ranks: int, microbatches: int, group: int) -> str:
    """Megatron-LM's rule for the microbatch group size per virtual stage."""
    rest = microbatches % group
    if ranks <= group <= microbatches and (rest == 0 or rest >= ranks):
        return ""
    cure = (
        f" (group = {least_group(ranks, microbatches)} would do)" if microbatches >= ranks else ""
    )
    if not ranks <= group <= microbatches:
        return f"Megatron's rule is that the group, {group}, is from p to m{cure}"
    return (
        f"Megatron's rule is that m mod the group of {group} is 0 or at least p, not {rest}{cure}"
    )


def least_group(ranks: int, microbatches: int) -> int:
    """The smallest group that Megatron-LM takes for m ≥ p microbatches: it holds the least."""
    groups = range(ranks, microbatches + 1)
    return next(g for g in groups if microbatches % g == 0 or microbatches % g >= ranks)


def broken_rule(ranks: int, microbatches: int, virtual: int, **options: Option) -> str:
    rule, group = options.get("rule"), options.get("group")
    if rule is not None and rule not in RULES:
        raise InputError(f"rule is {rule!r}; the interleaved rules are {' and '.join(RULES)}")
    if group is not None and (not isinstance(group, int) or group < 1):
        raise InputError(f"group is {group!r}; it is a number of microbatches, at least 1")
    if rule == "pytorch" and group is not None:
        raise InputError("the group is Megatron's; PyTorch's rule derives its own from p and m")
    if rule == "megatron" or group is not None:
        return broken_megatron_rule(ranks, microbatches, group or ranks)
    return broken_pytorch_rule(ranks, microbatches)


FAMILY = Family(
    name="interleaved-1f1b",
    aliases=("ScheduleInterleaved1F1B", "interleaved", "1f1b-interleaved"),
    summary="v stages a rank in rounds: the bubble shrinks v times, the transfers grow v times",
    source="Megatron-LM, arXiv 2104.04473; torch.distributed.pipelining",
    bubble="(p−1)/(vm+p−1) where m ≥ p",
    memory="p + (p−1−2r)/v microbatches on rank r where g = p, at most m",
    order=order,
    needs="PyTorch's rule: m a multiple of max(1, ⌊m/p⌋); Megatron's (:rule=megatron:group=g): "
    "p ≤ g ≤ m, m mod g 0 or ≥ p",
    broken_rule=broken_rule,
    virtual=(2, None),
    placement=looping,
    options=("rule", "group"),
)
