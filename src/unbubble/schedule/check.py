"""The proof that a schedule is complete, consistent and free of deadlock.

    complete     every stage runs F, and B or I and W, once for every microbatch (of its copy);
                 with `forward_only`, which is inference, F alone
    consistent   each stage on its own rank; F before its backward, I before W; where stages hand
                 over on one rank, in order; every input from another rank received before its use
                 and nothing else received; every pair of ranks receives in the order of sending;
                 UNSHARD, RESHARD, REDUCE_GRAD, CLIP and OPTIMIZER where they make sense
    no deadlock  every rank comes to its end, under the sends that are asked for:
                 blocking   a send waits until its receive is posted (rendezvous)
                 buffered   a send waits for nothing
                 batched    adjacent sends and receives with one peer are posted as one group
                 A receive waits for its send in all of them.

A compute-only schedule leaves the transfers to whoever lowers it; its deadlock is one of the
order of its actions alone.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from unbubble.action import STAGE_MASK, STAGE_SHIFT
from unbubble.errors import InputError
from unbubble.schedule.deadlock import SENDS, Blocked, blocked_actions
from unbubble.schedule.order import Schedule, actions_of
from unbubble.schedule.post import posts_of
from unbubble.schedule.rules import Fault, faults_of, faults_of_placement

if TYPE_CHECKING:
    from array import array

__all__ = ["SENDS", "Blocked", "Fault", "Report", "check", "check_rows", "grid"]

_ROWS_AROUND = 8
MOST_FAULTS = 1000
"""A hostile file can break more rules than memory holds; the report stops here."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `check` found, in the order of ranks and positions; good when both are empty."""

    faults: tuple[Fault, ...]
    deadlock: tuple[Blocked, ...]
    send: str

    @property
    def good(self) -> bool:
        return not self.faults and not self.deadlock

    def __bool__(self) -> bool:
        return self.good


def check(schedule: Schedule, send: str = "blocking", *, forward_only: bool = False) -> Report:
    """Prove a schedule, or name its faults and, for the given kind of sends, its deadlock."""
    if send not in SENDS:
        raise InputError(f"send is {send!r}; it is one of {', '.join(SENDS)}")
    rank_of = dict(enumerate(schedule.placement.rank_of))
    misplaced = _first(faults_of_placement(schedule.codes, rank_of))
    if misplaced:  # everything else depends on where the stages are
        return Report(faults=misplaced, deadlock=(), send=send)
    posts = posts_of(schedule)
    return Report(
        faults=_first(faults_of(schedule, posts, forward_only)),
        deadlock=tuple(blocked_actions(schedule, posts, send)),
        send=send,
    )


def check_rows(
    rows: Sequence["array[int]"], send: str = "blocking", *, forward_only: bool = False
) -> Report:
    """`check` for rows of codes as they come from a file, their placement not being known: a stage
    lives on the rank that uses it most, and elsewhere it is a fault."""
    uses: dict[int, Counter[int]] = {}
    for rank, row in enumerate(rows):
        for stage, count in Counter(code >> STAGE_SHIFT & STAGE_MASK for code in row).items():
            uses.setdefault(stage, Counter())[rank] = count
    rank_of = {stage: by_rank.most_common(1)[0][0] for stage, by_rank in uses.items()}
    misplaced = _first(faults_of_placement(rows, rank_of))
    if misplaced:
        return Report(faults=misplaced, deadlock=(), send=send)
    return check(Schedule.of_codes(rows), send, forward_only=forward_only)


def grid(rows: Sequence["array[int]"], faults: Sequence[Fault | Blocked], columns: int = 9) -> str:
    """The orders around the first fault or blocked action, one row a rank, by position.

    `>…<` marks a faulty action, and `?` in front of it what is missing there:

    position   2        3        4
    rank 0     0F2      0B0      0B1
    rank 1     1F1      >1F1<    1B1
    """
    if not faults:
        return ""
    marked: dict[tuple[int, int], list[str]] = {}
    for fault in faults:
        marked.setdefault((fault.rank, fault.position), []).append(fault.action)
    first = max(0, faults[0].position - columns // 2)
    actions = {rank: dict(enumerate(actions_of(row))) for rank, row in enumerate(rows)
               if abs(rank - faults[0].rank) <= _ROWS_AROUND}  # fmt: skip
    last = max([position for rank, position in marked if rank in actions]
               + [len(row) - 1 for row in actions.values()])  # fmt: skip
    shown = range(first, min(first + columns, last + 1))
    table = [["position", *map(str, shown)]]
    for rank, row in actions.items():
        cells = [f"rank {rank}"]
        for position in shown:
            here = str(row.get(position, ""))
            at_fault = marked.get((rank, position), [])
            missing = [f"?{action}" for action in dict.fromkeys(at_fault) if action != here]
            cell = " ".join([*missing, here]).strip()
            cells.append(f">{cell}<" if at_fault else cell)
        table.append(cells)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in table
    )
    return "\n".join(lines)


def _first(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(islice(faults, MOST_FAULTS)))
