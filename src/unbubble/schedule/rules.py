"""The rules of a complete and consistent schedule, each a fault where it is broken.

An action's position counts from 0 in its rank's order, an overlapped pair being one action. What
is missing stands where it was needed, else at the end of its row.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple

from unbubble.action import (
    COMPUTE,
    JOINED,
    KIND_AND_STAGE,
    KIND_MASK,
    MICROBATCH_SHIFT,
    RECV_B,
    RECV_F,
    SEND_B,
    SEND_F,
    STAGE_MASK,
    STAGE_SHIFT,
    TRANSFER,
    B,
    F,
    I,
    Kind,
    W,
    pack,
    unpack,
)
from unbubble.schedule.order import Schedule
from unbubble.schedule.post import Posts, messages

if TYPE_CHECKING:
    from array import array

_END_OF_STEP = (Kind.REDUCE_GRAD, Kind.CLIP, Kind.OPTIMIZER)  # in the order that they run in
_USERS = {F: (SEND_F, B, I), B: (SEND_B,), I: (SEND_B, W), W: ()}
"""What needs a kind's result on the same stage and microbatch."""
_STAGE = 1 << STAGE_SHIFT
NEVER = 1 << 62


class Fault(NamedTuple):
    """One broken rule: where it shows, the action at fault (or missing), what is wrong with it."""

    rank: int
    position: int
    action: str
    fault: str


def faults_of_placement(
    rows: Sequence["array[int]"], rank_of: Mapping[int, int]
) -> Iterator[Fault]:
    """Actions of stages that live on another rank, and gaps in the numbers of the stages."""
    gap = next(stage for stage in range(len(rank_of) + 1) if stage not in rank_of)
    for rank, row in enumerate(rows):
        stages = {kind >> STAGE_SHIFT for kind in set(map(KIND_AND_STAGE.__and__, row))}
        wrong = {s for s in stages if rank_of.get(s) != rank or s > gap}
        if not wrong:
            continue
        for position, code in positions(row):
            stage = code >> STAGE_SHIFT & STAGE_MASK
            if stage not in wrong:
                continue
            if stage not in rank_of:
                why = f"the last stage of the schedule is {len(rank_of) - 1}, counted from 0"
            elif stage > gap:
                why = f"stage {gap} is missing; stages count from 0 without a gap"
            else:
                why = f"stage {stage} lives on rank {rank_of[stage]}; a stage lives on one rank"
            yield Fault(rank, position, str(unpack(code)), why)


def faults_of(schedule: Schedule, posts: Posts, forward_only: bool = False) -> Iterator[Fault]:
    """Every fault of a schedule whose stages are where they should be, in no order; `posts` are
    its own. With `forward_only` no backward is missed."""
    wheres = []
    for rank, row in enumerate(schedule.codes):
        where, again = _first_positions(row, schedule.flush)
        wheres.append(where)
        for position, code in again:
            action = unpack(code)
            first = where[code & ~JOINED]
            yield Fault(rank, position, str(action), f"it stands at position {first} already")
    expected = _microbatches(schedule, wheres)
    kinds = set(map(KIND_MASK.__and__, chain.from_iterable(wheres)))
    comms = not kinds.isdisjoint(TRANSFER)
    for rank, where in enumerate(wheres):
        yield from _order_faults(rank, where, schedule, expected, comms)
        yield from _missing(rank, where, schedule, expected, forward_only)
    yield from _message_faults(schedule, posts)
    if not kinds <= COMPUTE | TRANSFER:
        yield from _whole_stage_faults(schedule, kinds, expected)


def positions(row: "array[int]") -> Iterator[tuple[int, int]]:
    """(position, code) of every code of a row."""
    position = 0
    for code in row:
        yield position, code
        position += not code & JOINED


def position_of(row: "array[int]", place: int) -> int:
    """The position of the code at a place of a row."""
    return place - sum(map(JOINED.__and__, row[:place])) // JOINED


def _first_positions(
    row: "array[int]", flush: bool
) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """The first position of every plain code; (position, code) of those that stand there again
    and may not."""
    repeatable = (
        (Kind.UNSHARD, Kind.RESHARD) if flush else (Kind.UNSHARD, Kind.RESHARD, *_END_OF_STEP)
    )
    plains = [*map((~JOINED).__and__, row)]
    joins = JOINED in map(JOINED.__and__, row)
    where = dict(zip(plains, [at for at, _ in positions(row)] if joins else count(), strict=False))
    again = []
    if len(where) < len(plains):  # something stands there again
        where = {}
        for position, code in positions(row):
            plain = code & ~JOINED
            if plain not in where:
                where[plain] = position
            elif plain & KIND_MASK not in repeatable:
                again.append((position, code))
    return where, again


def _microbatches(schedule: Schedule, wheres: list[dict[int, int]]) -> list[Collection[int]]:
    """The microbatches that every copy of the model should run.

    How many they are is what most stages say, so that one stage's fault shows on that stage; a
    microbatch belongs to the copy that holds most of its actions.
    """
    stages, copies = schedule.placement.num_stages, schedule.placement.copies
    seen: Counter[tuple[int, bool]] = Counter()
    belongs: Counter[tuple[int, int]] = Counter()
    for where in wheres:
        once: Collection[int] = where
        columns = Counter(map(KIND_AND_STAGE.__and__, once))
        if any(column & KIND_MASK == I and column - I + B in columns for column in columns):
            # a backward that stands there in both forms counts once
            once = [c for c in where if c & KIND_MASK != I or c - I + B not in where]
            columns = Counter(map(KIND_AND_STAGE.__and__, once))
        for column, number in columns.items():
            if (kind := column & KIND_MASK) <= I:
                seen[column >> STAGE_SHIFT, kind == F] += number
        if copies > 1:
            for code in once:
                if code & KIND_MASK <= I:
                    stage = code >> STAGE_SHIFT & STAGE_MASK
                    belongs[(code >> MICROBATCH_SHIFT) - 1, stage // stages] += 1
    votes: list[Counter[int]] = [Counter() for _ in range(copies)]
    for (stage, _), number in seen.items():
        votes[stage // stages][number] += 1
    total = max(1, sum(max((n, count) for count, n in v.items())[1] for v in votes if v))
    if copies == 1:
        return [range(total)]
    home: dict[int, tuple[int, int]] = {}  # most uses, then the lowest copy
    for (microbatch, copy), uses in belongs.items():
        home[microbatch] = max(home.get(microbatch, (0, 0)), (uses, -copy))
    expected: list[set[int]] = [set() for _ in range(copies)]
    for microbatch in range(total):
        expected[-home.get(microbatch, (0, 0))[1]].add(microbatch)
    return list(expected)


def _order_faults(
    rank: int,
    where: dict[int, int],
    schedule: Schedule,
    expected: list[Collection[int]],
    comms: bool,
) -> Iterator[Fault]:
    """What each action of a rank finds wrong with itself: its microbatch, inputs, output."""
    placement = schedule.placement
    stages = placement.num_stages
    next_rank, previous_rank = placement.next_rank, placement.previous_rank
    find = where.get

    def fault(code: int, position: int, why: str) -> Fault:
        return Fault(rank, position, str(unpack(code)), why)

    def either(base: int) -> int:
        """Position of the first of B and I; NEVER: it has neither."""
        return min(find(base + B, NEVER), find(base + I, NEVER))

    for code, position in where.items():
        kind = code & KIND_MASK
        if kind > RECV_B:
            continue
        stage = code >> STAGE_SHIFT & STAGE_MASK
        base = code - kind
        if (code >> MICROBATCH_SHIFT) - 1 not in expected[stage // stages]:
            count = sum(map(len, expected))
            why = f"the last microbatch of the schedule is {count - 1}, counted from 0"
            if (code >> MICROBATCH_SHIFT) - 1 < count:
                why = "another copy of the model runs its microbatch"
            yield fault(code, position, why)
        elif kind == F:
            if stage % stages:  # it has one before it
                if previous_rank[stage] < 0:
                    before = find(base - _STAGE + F, -1)
                    if before >= position:
                        why = f"it comes before {unpack(base - _STAGE + F)}, whose output it takes"
                        yield fault(code, position, why)
                elif comms and base + RECV_F not in where:
                    yield fault(base + RECV_F, position, f"missing: {unpack(code)} needs it")
            if comms and next_rank[stage] >= 0 and base + SEND_F not in where:
                why = f"missing: rank {next_rank[stage]} needs it"
                yield fault(base + SEND_F, position + 1, why)
        elif kind <= I:  # B or I
            if find(base + F, -1) >= position:
                yield fault(code, position, "it comes before its forward")
            if (stage + 1) % stages:  # it has one after it
                if next_rank[stage] < 0:
                    if NEVER > either(base + _STAGE) >= position:
                        why = f"it comes before the backward of stage {stage + 1}, which it needs"
                        yield fault(code, position, why)
                elif comms and base + RECV_B not in where:
                    yield fault(base + RECV_B, position, f"missing: {unpack(code)} needs it")
            if comms and previous_rank[stage] >= 0 and base + SEND_B not in where:
                why = f"missing: rank {previous_rank[stage]} needs it"
                yield fault(base + SEND_B, position + 1, why)
            if kind == B and base + I in where:
                yield fault(code, position, "the same backward stands there in halves as well")
            elif kind == B and base + W in where:
                why = f"it is a full backward, and {unpack(base + W)} stands there as well"
                yield fault(code, position, f"{why}; the input gradient, an older B, is written I")
        elif kind == W:
            if find(base + I, -1) >= position:
                yield fault(code, position, "it comes before its input gradient")
        elif kind == SEND_F:
            if next_rank[stage] < 0:
                yield fault(code, position, _nowhere((stage + 1) % stages == 0, "sends its output"))
            elif find(base + F, -1) > position:
                yield fault(code, position, "it comes before the forward whose output it sends")
        elif kind == RECV_F:
            if previous_rank[stage] < 0:
                yield fault(code, position, _nowhere(stage % stages == 0, "receives its input"))
            elif find(base + F, position) < position:
                yield fault(code, position, "it comes after the forward that needs it")
        elif kind == SEND_B:
            if previous_rank[stage] < 0:
                yield fault(code, position, _nowhere(stage % stages == 0, "sends a gradient"))
            elif NEVER > either(base) > position:
                yield fault(code, position, "it comes before the backward whose gradient it sends")
        elif next_rank[stage] < 0:
            yield fault(code, position, _nowhere((stage + 1) % stages == 0, "receives a gradient"))
        elif either(base) < position:
            yield fault(code, position, "it comes after the backward that needs it")


def _nowhere(end: bool, what: str) -> str:
    if end:
        return f"this stage, at the end of the model, never {what}"
    return f"the stage {what} on its own rank, without a transfer"


def _missing(
    rank: int,
    where: dict[int, int],
    schedule: Schedule,
    expected: list[Collection[int]],
    forward_only: bool,
) -> Iterator[Fault]:
    """The forwards and backwards that a rank's stages should run and do not."""
    placement = schedule.placement
    row = schedule.codes[rank]
    end = position_of(row, len(row))
    split = any(code & KIND_MASK in (I, W) for code in where)
    for stage in placement.stages_of(rank):
        first = pack(0, stage, 0)
        for microbatch in expected[stage // placement.num_stages]:
            base = first + (microbatch << MICROBATCH_SHIFT)
            if base + F in where and (
                base + B in where or (base + I in where and base + W in where)
            ):
                continue
            lacks = [] if base + F in where else [F]
            if base + B not in where and not forward_only:
                halves = split or base + I in where or base + W in where
                lacks += [k for k in ((I, W) if halves else (B,)) if base + k not in where]
            for kind in lacks:
                users = [where[base + user] for user in _USERS[kind] if base + user in where]
                yield Fault(rank, min(users, default=end), str(unpack(base + kind)), "missing")


def _message_faults(schedule: Schedule, posts: Posts) -> Iterator[Fault]:
    """Pairs of ranks that receive in another order than is sent; the first such of each pair."""
    lists: list[list[int]] = [[] for _ in range(2 * len(posts.channels))]
    for row in posts.rows:
        for message, side in zip(messages(row.codes), row.sides, strict=True):
            lists[side].append(message)
    for channel, (source, rank) in enumerate(posts.channels):
        sent, received = lists[2 * channel : 2 * channel + 2]
        if sent == received:
            continue
        both = set(sent) & set(received)
        first_out = (message for message in dict.fromkeys(sent) if message in both)
        first_in = (message for message in dict.fromkeys(received) if message in both)
        for out, into in zip(first_out, first_in, strict=True):
            if out != into:
                codes = schedule.codes[rank]
                position = position_of(codes, codes.index(into))
                why = f"rank {source} sends what {unpack(out)} receives before it"
                yield Fault(rank, position, str(unpack(into)), why)
                break


def _whole_stage_faults(
    schedule: Schedule, kinds: set[int], expected: list[Collection[int]]
) -> Iterator[Fault]:
    """UNSHARD, RESHARD and the actions that end a stage's step.

    Where a schedule has one of them at all, it is asked of every stage that computes: PyTorch
    refuses to compute on a sharded stage, and scales the gradients in REDUCE_GRAD.
    """
    stages = schedule.placement.num_stages
    sharding = Kind.UNSHARD in kinds or Kind.RESHARD in kinds
    ends = [kind for kind in _END_OF_STEP if kind in kinds and schedule.flush]
    for rank, row in enumerate(schedule.codes):
        unsharded: dict[int, bool] = {}  # whether the stage has computed since
        ended: dict[int, Kind] = {}
        position = -1
        for position, code in positions(row):
            action = unpack(code)
            kind, stage = action.kind, action.stage
            why = ""
            if kind is Kind.UNSHARD:
                if stage in unsharded:
                    why = "the stage is unsharded already"
                unsharded[stage] = False
            elif kind is Kind.RESHARD:
                if stage not in unsharded:
                    why = "the stage is not unsharded"
                elif not unsharded.pop(stage):
                    why = "the stage has not computed since it was unsharded"
            elif kind in ends:
                if (last := ended.setdefault(stage, kind)) > kind:
                    why = f"it comes after the stage's {last.name}"
                ended[stage] = max(last, kind)
            elif kind in COMPUTE:
                if sharding and stage not in unsharded:
                    why = "the stage is not unsharded"
                elif stage in ended:
                    why = f"it comes after the flush, the stage's {ended[stage].name}"
                if stage in unsharded:
                    unsharded[stage] = True
            if why:
                yield Fault(rank, position, str(action), why)
        for stage in unsharded:
            yield Fault(rank, position + 1, f"{stage}RESHARD", "missing")
        present = set(row)
        for stage in schedule.placement.stages_of(rank):
            for end in ends:
                if expected[stage // stages] and pack(end, stage) not in present:
                    yield Fault(rank, position + 1, f"{stage}{end.name}", "missing")
