"""Rows: the ranks that a picture shows and the blocks on each of them."""

from collections.abc import Iterator
from typing import NamedTuple

from unbubble.action import TRANSFER, Action, Kind
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


def blocks(timeline: Timeline, rank: int) -> Iterator[Block]:
    """A rank's blocks in order, transfers left out: they have no row in a picture."""
    chunk_of = {s: i for i, s in enumerate(timeline.schedule.placement.stages_of(rank))}
    for action, start, end in timeline.events(rank):
        if end > start and action.kind not in TRANSFER:
            chunks = tuple(chunk_of.get(part.stage, 0) for part in action.parts)
            yield Block(start, end, action, chunks)


def kinds(timeline: Timeline) -> set[Kind]:
    """The kinds that occur on any rank."""
    return {
        action.kind for rank in range(timeline.ranks) for action in timeline.schedule.actions(rank)
    }


def shown_ranks(ranks: int, most: int) -> list[int]:
    """All ranks, or `most` evenly spread ones with the first and the last among them."""
    if ranks <= most:
        return list(range(ranks))
    return [i * (ranks - 1) // (most - 1) for i in range(most)]
