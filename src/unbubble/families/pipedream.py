"""PipeDream: 1F1B that never drains; every backward updates its stage's weights at once.

p=4 m=8, F=B=1            the beginning of a pipeline without an end
rank 0  0 1 2 3 . . . a 4 b 5 c 6 d 7 e . f . g . h
rank 1  . 0 1 2 . . a 3 b 4 c 5 d 6 e 7 f . g . h .
rank 2  . . 0 1 . a 2 b 3 c 4 d 5 e 6 f 7 g . h . .
rank 3  . . . 0 a 1 b 2 c 3 d 4 e 5 f 6 g 7 h . . .

There is no bubble between steps. The price is that weights move on under the microbatches in
flight: a backward needs the weights of its forward, so that rank r keeps p−r versions of them, and
its gradient updates weights that are p−1−r updates further.
"""

from array import array
from collections.abc import Iterator

from unbubble.action import KIND_MASK, MICROBATCH_SHIFT, STAGE_MASK, STAGE_SHIFT, Kind
from unbubble.costs import Costs
from unbubble.families.family import Family, Option
from unbubble.families.one_f_one_b import FAMILY as ONE_F_ONE_B
from unbubble.schedule.order import Schedule


def order(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """The order of 1F1B over all the microbatches that are looked at, without a flush."""
    flushed = ONE_F_ONE_B.order(ranks, microbatches, virtual, costs=costs)
    return Schedule.of_codes(flushed.codes, flushed.placement, flush=False)


def staleness(schedule: Schedule) -> tuple[tuple[int, ...], ...]:
    """For every rank and each of its updates in turn: how many updates its gradient is behind.

    That is the number of updates of the stage between the forward that the gradient comes from and
    the update that it makes: p − 1 − r on rank r of a running PipeDream. A schedule with a flush
    updates once a step, 0 behind.
    """
    if schedule.flush:
        return ((0,),) * schedule.ranks
    return tuple(tuple(now - seen for seen, now, _ in _updates(row)) for row in schedule.codes)


def weight_versions(schedule: Schedule) -> tuple[int, ...]:
    """For every rank: the most versions of one stage's weights that it holds at a time.

    They are the current one and those which a backward is still to come for: p − r on rank r of a
    running PipeDream (fewer where m is too small to get there). A schedule with a flush has one.
    """
    if schedule.flush:
        return (1,) * schedule.ranks
    return tuple(max((held for _, _, held in _updates(row)), default=1) for row in schedule.codes)


def _updates(row: "array[int]") -> Iterator[tuple[int, int, int]]:
    """For every update of a rank: the version its forward saw, the version that it replaces, and
    how many versions the rank holds of the stage when it is done."""
    version: dict[int, int] = {}
    seen: dict[tuple[int, int], int] = {}
    waiting: dict[int, dict[int, int]] = {}
    for code in row:
        kind, stage = code & KIND_MASK, code >> STAGE_SHIFT & STAGE_MASK
        key = stage, code >> MICROBATCH_SHIFT
        now = version.setdefault(stage, 0)
        needed = waiting.setdefault(stage, {})
        if kind == Kind.F:
            seen[key] = now
            needed[now] = needed.get(now, 0) + 1
        elif kind in (Kind.B, Kind.W):
            used = seen.pop(key)
            needed[used] -= 1
            if not needed[used]:
                del needed[used]
            version[stage] = now + 1
            yield used, now, len(needed) + 1


FAMILY = Family(
    name="pipedream",
    summary="1F1B without a flush: no bubble between steps, stale weights instead",
    source="PipeDream, arXiv 1806.03377",
    bubble="0 in the steady state",
    memory="min(p−r, m) microbatches and as many versions of the weights on rank r",
    order=order,
)
