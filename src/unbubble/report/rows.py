"""Rows: the ranks that a picture shows and the blocks on each of them."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from unbubble.action import COMPUTE, JOINED, KIND_MASK, TRANSFER, Action, Kind
from unbubble.simulate import Timeline


class Block(NamedTuple):
    """One action that takes time, in ticks; `chunks` are the virtual stages of its parts (0 for a
    rank's first stage, two values for an overlapped pair)."""

    start: int
    end: int
    action: Action
    chunks: tuple[int, ...]


def window(timeline: Timeline) -> tuple[int, int]:
    """First start and last end over all ranks, in ticks."""
    starts = [row[0] for row in timeline.starts if row]
    ends = [max(row) for row in timeline.ends if row]
    return (min(starts), max(ends)) if starts else (0, 0)


def extent(timeline: Timeline) -> int:
    """Last end − first start over all ranks, in ticks."""
    begin, end = window(timeline)
    return end - begin


def blocks(timeline: Timeline, rank: int) -> list[Block]:
    """A rank's blocks in order, none over another.

    Of the tail's actions, which may run beside compute, the parts that no compute covers; posted
    transfers are left out: they have no row in a picture.
    """
    chunk_of = {s: i for i, s in enumerate(timeline.schedule.placement.stages_of(rank))}
    compute: list[Block] = []
    tail: list[Block] = []
    for action, start, end in timeline.events(rank):
        if end > start and action.kind not in TRANSFER:
            chunks = tuple(chunk_of.get(part.stage, 0) for part in action.parts)
            (compute if action.is_compute else tail).append(Block(start, end, action, chunks))
    return sorted([*compute, *_uncovered(tail, compute)]) if tail else compute


def _uncovered(tail: list[Block], compute: list[Block]) -> Iterator[Block]:
    """The parts of the tail's blocks outside of compute; of two at one time the first is shown."""
    free = 0
    for block in sorted(tail):
        at = max(block.start, free)
        for busy in [b for b in compute if b.end > at and b.start < block.end]:
            if busy.start > at:
                yield block._replace(start=at, end=busy.start)
            at = busy.end
        if block.end > at:
            yield block._replace(start=at)
        free = max(free, block.end)


def part_of_run(timeline: Timeline) -> tuple[str, str]:
    """What of a training run without a flush a picture shows, in both languages; empty where it is
    a step, which has a beginning and an end of its own."""
    if timeline.schedule.flush:
        return "", ""
    return "fill, steady state and drain", "填充、稳态与排空"


def kinds(timeline: Timeline) -> set[Kind]:
    """The kinds that occur on any rank; the parts of overlapped pairs count as themselves too."""
    seen = {code & (KIND_MASK | JOINED) for row in timeline.schedule.codes for code in row}
    found = {Kind(code & KIND_MASK) for code in seen}
    return found | {Kind.OVERLAP_F_B} if any(code & JOINED for code in seen) else found


def virtual_stages(timelines: Iterable[Timeline]) -> int:
    """The most stages that a rank holds, copies included."""
    return max(len(t.schedule.placement.rank_of) // t.ranks for t in timelines)


def has_tail(found: set[Kind]) -> bool:
    """Whether any of the kinds belongs to the tail of a step."""
    return bool(found - COMPUTE - TRANSFER)


def shown_ranks(ranks: int, most: int) -> list[int]:
    """All ranks, or `most` evenly spread ones with the first and the last among them."""
    if ranks <= most:
        return list(range(ranks))
    return [i * (ranks - 1) // (most - 1) for i in range(most)]
