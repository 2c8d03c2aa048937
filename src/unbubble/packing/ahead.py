"""How many forwards each rank runs before its first backward, on one stage a rank.

    rank 0  0 1 2 3 4 . . a 5 b        5 ahead, then two slots of idle time
    rank 1  . 0 1 2 . . a 3 b 4        3
    rank 2  . . 0 . . a 1 b 2 c        1

With few a rank idles until the first gradient is back; many delay that gradient and fill the
memory. The fewest are taken that keep every rank's idle time within an allowance.
"""

from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from unbubble.action import Kind
from unbubble.costs import Costs
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import linear
from unbubble.schedule.weave import array_of, run, weave
from unbubble.simulate.program import Program

PARTS = 10
"""Allowances are so many parts of a forward: of less than a whole one, some gradient is delayed."""


class Way(NamedTuple):
    """One microbatch's way over the ranks, in ticks: F and I of each, the transfers into them."""

    forwards: list[int]
    inputs: list[int]
    up: list[int]
    down: list[int]


def orders(ranks: int, microbatches: int, room: int, costs: Costs) -> Iterator[list["array[int]"]]:
    """Orders of F and I worth filling: some forwards ahead, then I and F in turn.

    `room`: the microbatches that a rank has memory for.
    """
    way = way_of(ranks, costs)
    seen: list[list[int]] = []
    for part in range(PARTS, 0, -1):
        allowance = max(way.forwards) * part // PARTS
        counts = fewest(way, microbatches, room, allowance)
        for fewer in (2, 1):
            ahead = descending(counts, fewer, microbatches)
            if ahead not in seen:
                seen.append(ahead)
                yield [in_turn_after(n, rank, microbatches) for rank, n in enumerate(ahead)]


def descending(counts: list[int], fewer: int, microbatches: int) -> list[int]:
    """The counts, made lower where a rank is not so many fewer ahead than the one before.

    It matters where the room limits the counts: a rank 1 fewer ahead than the one before gets each
    microbatch just when it needs it and waits for every transfer; 2 fewer leave it one in hand.
    """
    ahead = counts[:1]
    for count in counts[1:]:
        limit = microbatches if ahead[-1] == microbatches else max(1, ahead[-1] - fewer)
        ahead.append(min(count, limit))
    return ahead


def in_turn_after(ahead: int, rank: int, microbatches: int) -> "array[int]":
    """So many forwards, then an input gradient and a forward in turn."""
    forwards, inputs = (run(kind, rank, 0, microbatches) for kind in (Kind.F, Kind.I))
    return array_of(forwards[:ahead], weave((inputs, 0), (forwards[ahead:], 0)))


def fewest(way: Way, microbatches: int, room: int, allowance: int) -> list[int]:
    """The fewest forwards ahead that keep each rank's idle time before its first gradient within
    the allowance, as far as the room suffices."""
    ranks = len(way.forwards)
    begins = accumulate(f + lag for f, lag in zip([0, *way.forwards], way.up, strict=False))
    pace = accumulate(way.forwards, max)  # forwards come no faster than the slowest rank sends them
    counts, gradient, after = [0] * ranks, 0, 0
    for rank, begin, step in reversed(list(zip(range(ranks), begins, pace, strict=True))):
        first = begin + way.forwards[rank]
        gradient = first if rank == ranks - 1 else gradient + way.down[rank]
        wanted = -(-(gradient - allowance - first) // step) if step else 0
        # a rank that is no further ahead than the next would have nothing for it to do
        counts[rank] = after = min(max(1 + wanted, 1 + after), microbatches, room)
        end = first + (counts[rank] - 1) * step
        gradient = max(gradient, end) + way.inputs[rank]
    return counts


def way_of(ranks: int, costs: Costs) -> Way:
    """Read off the program of a single microbatch, so that times and transfers are those that the
    simulation has."""
    kinds = (Kind.F, Kind.I, Kind.W)
    rows = [array_of(*(run(kind, rank, 0, 1) for kind in kinds)) for rank in range(ranks)]
    program = Program(Schedule.of_codes(rows, linear(ranks)), costs)
    return Way(
        forwards=list(program.duration[::3]),
        inputs=list(program.duration[1::3]),
        up=list(program.lag[::3]),
        down=list(program.lag[1::3]),
    )
