"""Intervals: unions of (start, end) pairs, and what one union leaves of another."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points as disjoint intervals, ascending."""
    merged: list[Interval] = []
    last_start = last_end = 0
    for start, end in sorted(intervals):
        if merged and start <= last_end:
            if end > last_end:
                last_end = end
                merged[-1] = (last_start, end)
        else:
            last_start, last_end = start, end
            merged.append((start, end))
    return merged


def length(merged: Iterable[Interval]) -> int:
    """Total length of disjoint intervals."""
    return sum(end - start for start, end in merged)


def clip(merged: Sequence[Interval], start: int, end: int) -> list[Interval]:
    """What of disjoint, ascending intervals lies within start … end."""
    first = bisect_right(merged, start, key=lambda one: one[1])
    last = bisect_left(merged, end, key=lambda one: one[0])
    return [(max(a, start), min(b, end)) for a, b in merged[first:last]]


def outside(merged: Iterable[Interval], hidden: Iterable[Interval]) -> int:
    """Length of the first union's points that the second (disjoint, ascending) does not cover."""
    rest, cover = list(merged), list(hidden)
    covered, i = 0, 0
    for start, end in rest:
        while i < len(cover) and cover[i][1] <= start:
            i += 1
        j = i
        while j < len(cover) and cover[j][0] < end:
            covered += min(end, cover[j][1]) - max(start, cover[j][0])
            j += 1
    return length(rest) - covered
