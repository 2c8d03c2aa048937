"""Assembly: the ranks' observations of one step joined into one measured Timeline.

Stages are given where names carry none, transfers are paired, clocks aligned. What cannot be told
is said in `unknown`; a rank that is missing is named, and then there is no Timeline.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low

from unbubble.action import RECEIVE_OF, Action, Kind, receive_of
from unbubble.errors import InputError, some
from unbubble.schedule import Placement, Schedule
from unbubble.schedule.inputs import inputs
from unbubble.schedule.lowering import compute_only
from unbubble.schedule.placement import infer
from unbubble.simulate import Timeline
from unbubble.simulate.program import Deadlock, Program
from unbubble.simulate.replay import timeless
from unbubble.trace.clocks import Before, Clocks, align
from unbubble.trace.doubts import NOTICEABLE, doubts, too_early
from unbubble.trace.groups import BY_TURN
from unbubble.trace.names import NO_STAGE
from unbubble.trace.observed import (
    FOREVER_NS,
    NS,
    About,
    Doubt,
    HalfTransfer,
    Observed,
    Seen,
)
from unbubble.trace.pairing import Pair, name_in_order, pairs, transfer_orders
from unbubble.trace.recover import BY_LINKS
from unbubble.trace.rehearsal import without_rehearsal
from unbubble.trace.timeline import by_code, timeline_of

FROM_RANKS = "stages, from the order of the ranks"
NO_RECOMPUTE = Doubt(About.RECOMPUTE, "the trace does not say what backwards run again")
DISORDERED = 20
"""A share of the step; by more than that no drift of a clock makes effects precede causes."""
_BACKWARDS = (Kind.B, Kind.I)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One pipeline's step. `ranks[i]` is the job's rank of pipeline rank i of the timeline.

    Without a timeline `unknown` says what is missing.
    """

    ranks: tuple[int, ...]
    observed: tuple[Observed, ...]
    timeline: Timeline | None
    clocks: Clocks | None
    pairs: tuple[Pair, ...] = ()
    recovered: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class Missing(Exception):  # noqa: N818
    """Why there is no timeline."""


def assemble(
    observed: Sequence[Observed],
    placement: Placement | None = None,
    expected: int | None = None,
    mixed: str = "",
) -> Pipeline:
    """Join the ranks of one pipeline, given in the order of their first stages where that is known.

    `expected` is the number of ranks that it should have, where known; `mixed` says why they may be
    of several pipelines.

    `placement` replaces what the actions' names imply (a plan knows copies).
    """
    ranks = tuple(one.rank for one in observed)
    observed = without_rehearsal(observed)
    recovered = tuple(dict.fromkeys(r for one in observed for r in one.recovered))
    told = [(one.rank, reason) for one in observed for reason in one.unknown]
    timeline = clocks = None
    found: list[Pair] = []
    try:
        if mixed:
            raise Missing(mixed)
        _learned(observed)
        _one_step(observed)
        _all_here(observed, placement, expected)
        rows = _with_stages([one.actions for one in observed])
        if any(seen.action.stage == NO_STAGE for one in observed for seen in one.actions):
            recovered += (FROM_RANKS,)
            if expected is None and ranks != tuple(range(len(ranks))):
                absent = min(set(range(max(ranks) + 1)) - set(ranks), default=0)
                raise Missing(f"the trace of rank {absent} is missing")
        schedule = _schedule(observed, rows, placement)
        halves = _halves(observed, rows, schedule.placement)
        if not any(halves):
            _ends_here(rows, schedule.placement)
        silent = [one.rank for one, row in zip(observed, halves, strict=True) if not row]
        if not any(doubt.about is About.TRANSFERS for _, doubt in told):
            none = Doubt(
                About.TRANSFERS,
                "none of the pipeline is in the trace; a wait for one may be counted as compute",
            )
            told += [(rank, none) for rank in silent]
        whole = [[*one.head, *row, *one.tail] for one, row in zip(observed, rows, strict=True)]
        found = pairs(halves)
        hosts = {one.host for one in observed}
        clocks = align(
            len(rows),
            transfer_orders(found) if found else _action_orders(schedule, whole),
            same_clock=len(hosts) == 1 and hosts != {""},
        )
        told_all = all(one.recompute_told for one in observed)
        timeline = timeline_of(schedule, whole, found, clocks, recompute_told=told_all)
        odd = list(doubts(timeline, observed, found, clocks))
        _can_be(timeline, clocks, odd, recovered)
        if not found and len(rows) > 1 and not silent:
            odd.append(Doubt(About.TRANSFERS, "no send could be paired with its receive"))
        if not told_all and not any(doubt.about is About.RECOMPUTE for _, doubt in told):
            odd.append(NO_RECOMPUTE)
        unknown = list(map(str, odd))
    except (Missing, InputError) as reason:
        timeline = clocks = None
        found, unknown = [], [f"classes: {reason}"]
    return Pipeline(
        ranks=ranks, observed=tuple(observed), timeline=timeline, clocks=clocks,
        pairs=tuple(found), recovered=recovered, unknown=(*_merged(told, ranks), *unknown),
    )  # fmt: skip


def _all_here(
    observed: Sequence[Observed], placement: Placement | None, expected: int | None
) -> None:
    """Raises Missing unless there are as many ranks as there should be."""
    here = f"{len(observed)} traces are here"
    if expected is not None and expected != len(observed):
        ranks = {one.rank for one in observed}
        lost = [rank for rank in observed[0].pipeline_group if rank not in ranks]
        named = f"; rank {some(lost)} is missing" if lost else ""
        raise Missing(f"the pipeline has {expected} ranks and {here}{named}")
    if placement is not None and placement.ranks != len(observed):
        raise Missing(f"the plan has {placement.ranks} pipeline ranks and {here}")


def _learned(observed: Sequence[Observed]) -> None:
    """Raises Missing where a pipeline evaluated."""
    if any(one.learned for one in observed):
        return
    if any(one.actions or one.sends or one.receives for one in observed):
        raise Missing("no backward ran in this step, as in an evaluation")


def _one_step(observed: Sequence[Observed]) -> None:
    """Raises Missing where the optimizer of every rank ran between the actions."""
    if all(one.renewed for one in observed):
        raise Missing(
            "the optimizer ran between its actions, so it is several steps; mark each, as with the "
            "profiler's step()"
        )


def _can_be(
    timeline: Timeline, clocks: Clocks, odd: Sequence[Doubt], recovered: Sequence[str]
) -> None:
    """Raises Missing where what was recovered contradicts the step, or nothing in it took time."""
    length = timeline.length
    if not length:
        raise Missing("no action of the step took any time")
    early = any(doubt.about is About.ORDER for doubt in odd)
    if BY_LINKS in recovered and (early or clocks.contradiction * NOTICEABLE > length):
        raise Missing(
            "no range names the actions, and ranks did not wait for what they would need of "
            "each other; are these sends and receives no pipeline's?"
        )
    tolerated = length // DISORDERED
    guess = {
        FROM_RANKS: "are the stages in the order of the ranks?",
        BY_TURN: "several hold the same stages; which belong together --layout says, or the files "
        "of one pipeline alone",
    }
    for doubtful, question in guess.items():
        if doubtful in recovered and (
            clocks.contradiction > tolerated or too_early(timeline, tolerated)
        ):
            raise Missing(f"ranks did not wait for what they would need of each other; {question}")


def _merged(told: Sequence[tuple[int, Doubt]], ranks: Sequence[int]) -> list[str]:
    """Every doubt once, with its ranks unless it is of all of them."""
    by_doubt: dict[Doubt, list[int]] = {}
    for rank, doubt in told:
        by_doubt.setdefault(doubt, []).append(rank)
    return [
        str(doubt) if len(ranks) == len(own) > 1 else f"{_ranks(own)}: {doubt}"
        for doubt, own in by_doubt.items()
    ]


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {some(numbers)}"


def _with_stages(rows: Sequence[Sequence[Seen]]) -> list[list[Seen]]:
    """Stage r for the actions of rank r whose names carry none."""
    return [
        [
            seen._replace(action=seen.action._replace(stage=rank))
            if seen.action.stage == NO_STAGE
            else seen
            for seen in row
        ]
        for rank, row in enumerate(rows)
    ]


def _schedule(
    observed: Sequence[Observed], rows: Sequence[Sequence[Seen]], placement: Placement | None
) -> Schedule:
    if not any(rows):
        raise Missing("no action of a pipeline was found")
    if empty := [rank for rank, row in enumerate(rows) if not row]:
        raise Missing(f"pipeline rank {empty[0]} has no action in this step")
    orders = [
        [_of_stage(seen.action, row) for seen in (*one.head, *row, *one.tail)]
        for one, row in zip(observed, rows, strict=True)
    ]
    if placement is None:
        stages = [{a.stage for seen in row for a in seen.action.parts} for row in rows]
        used = set().union(*stages)
        if gaps := sorted(set(range(max(used) + 1)) - used):
            raise Missing(f"no trace holds stage {some(gaps)}; the trace of its rank is missing")
        placement = infer(stages)
    else:
        beyond = max(a.stage for row in rows for seen in row for a in seen.action.parts)
        if beyond + 1 != len(placement.rank_of):
            raise Missing(
                f"the plan has {len(placement.rank_of)} stages and the traces have {beyond + 1}"
            )
    schedule = Schedule.of(orders, placement)
    _complete(rows, schedule.placement)
    try:
        order = compute_only(schedule)
        Program(order, timeless(order)).run()
    except Deadlock as reason:
        raise Missing(f"no pipeline can have run so: {reason}") from None
    return schedule


def _complete(rows: Sequence[Sequence[Seen]], placement: Placement) -> None:
    """Every stage must have done the same microbatches, or some trace is cut off."""
    done: dict[tuple[Kind, int], set[int]] = {}
    for row in rows:
        for seen in row:
            for part in seen.action.parts:
                kind = part.kind if part.kind is not Kind.I else Kind.B
                numbers = done.setdefault((kind, part.stage), set())
                if part.microbatch in numbers:
                    raise Missing(f"{part} happened twice in the step")
                numbers.add(part.microbatch)
    of_copy: dict[int, set[int]] = {}
    for (_, stage), numbers in done.items():
        of_copy.setdefault(stage // placement.num_stages, set()).update(numbers)
    for (of, stage), numbers in sorted(done.items()):
        absent = sorted(of_copy[stage // placement.num_stages] - numbers)
        if of is not Kind.W and absent:
            raise Missing(
                f"{Action(of, stage, absent[0])} is in no trace ({len(absent)} such actions of "
                f"stage {stage}); its trace is cut off or holds only a part of the step"
            )
    for row in rows:
        for part in (part for seen in row for part in seen.action.parts):
            weight = part._replace(kind=Kind.W)
            if part.kind is Kind.I and part.microbatch not in done.get((Kind.W, part.stage), ()):
                raise Missing(f"{weight} is in no trace, and {part} is; some trace is incomplete")
    for kind in (Kind.F, Kind.B):
        if absent_stages := sorted({s for _, s in done} - {s for k, s in done if k is kind}):
            raise Missing(f"stage {absent_stages[0]} has no {kind.name}; its trace is incomplete")


def _ends_here(rows: Sequence[Sequence[Seen]], placement: Placement) -> None:
    """The last stage's first backward needs what its own forward made, so nothing can keep it;
    where it waited and no transfer is recorded, a later stage is missing."""
    for stage, rank in enumerate(placement.rank_of):
        if not placement.is_last(stage):
            continue
        took: dict[bool, list[int]] = {True: [], False: []}
        waited = None
        for before, seen in pairwise(rows[rank]):
            if any(part.stage == stage and part.kind in _BACKWARDS for part in seen.action.parts):
                took[True].append(seen.end - seen.start)
                waited = seen.start - before.end if waited is None else waited
            if any(part.stage == stage and part.kind is Kind.F for part in before.action.parts):
                took[False].append(before.end - before.start)
        if waited is None or not all(took.values()):
            continue
        usual = sum(map(median_low, took.values()))
        if waited > usual // 2:
            raise Missing(
                f"stage {stage}, the last in the traces, waited {waited / NS:.3g} s before its "
                "first backward, for which it needs nobody; is the trace of a later stage missing?"
            )


def _of_stage(action: Action, row: Sequence[Seen]) -> Action:
    if action.stage != NO_STAGE:
        return action
    return action._replace(stage=min(seen.action.stage for seen in row))


def _halves(
    observed: Sequence[Observed], rows: Sequence[Sequence[Seen]], placement: Placement
) -> list[list[HalfTransfer]]:
    """Every rank's ends of transfers, named."""
    halves = []
    for one, row in zip(observed, rows, strict=True):
        named = list(one.halves)
        if not named and (one.sends or one.receives):
            until = min((seen.start for seen in one.tail), default=FOREVER_NS)
            named, reason = name_in_order(row, one.sends, one.receives, placement, until)
            if reason:
                raise Missing(
                    f"rank {one.rank} has {reason} cannot be told; is a rank's trace missing, "
                    "or has the job several pipelines (--layout)?"
                )
        for half in named:
            if not 0 <= half.action.stage < len(placement.rank_of):
                raise Missing(f"{half.action} belongs to a stage of which there is no action")
            if half.action.kind in RECEIVE_OF:
                other = receive_of(half.action)
                if not 0 <= other.stage < len(placement.rank_of):
                    raise Missing(
                        f"{half.action} goes to stage {other.stage}, whose rank's trace is missing"
                    )
        halves.append(named)
    return halves


def _action_orders(schedule: Schedule, rows: Sequence[Sequence[Seen]]) -> Iterator[Before]:
    """An action starts after the one that makes its input ended."""
    every = [(rank, seen) for rank, row in enumerate(by_code(schedule, rows)) for seen in row]
    for (rank, seen), made in zip(every, inputs(schedule), strict=True):
        if made >= 0:
            source, maker = every[made]
            yield source, maker.end, rank, seen.start
