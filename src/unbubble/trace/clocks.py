"""Clocks: the offset of every rank's clock from causality, and how uncertain it stays.

Nothing is received before it was sent. Every pair of events, one on each of two ranks, bounds the
difference of their clocks; the bounds together leave an interval for every rank's offset, of which
the middle is taken (the lower half of a fastest round trip, as in NTP).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Before = tuple[int, int, int, int]
"""(rank, its time, other rank, its time): the first happened before the second."""


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """`offsets[r]` is added to rank r's times; none of them is wrong by more than `uncertainty`
    (ns) against rank 0's, or None where nothing bounds some clock."""

    offsets: tuple[int, ...]
    uncertainty: int | None
    contradiction: int = 0
    """By how much (ns) the bounds contradict each other at the worst; 0: they do not."""


def align(ranks: int, orders: Iterable[Before], *, same_clock: bool = False) -> Clocks:
    """Offsets that respect every order. On one machine (`same_clock`) they stay 0 if they can."""
    tightest: dict[tuple[int, int], int] = {}
    for before, sent, after, received in orders:
        if before != after:
            # sent + x_before <= received + x_after, that is x_before - x_after <= slack
            slack = received - sent
            key = (after, before)
            tightest[key] = min(slack, tightest.get(key, slack))
    worst = min(tightest.values(), default=0)
    if same_clock and worst >= 0:
        return Clocks(offsets=(0,) * ranks, uncertainty=0)
    edges = [(a, b, slack) for (a, b), slack in tightest.items()]
    upper = _shortest(ranks, edges)
    lower = _shortest(ranks, [(b, a, slack) for a, b, slack in edges])
    if upper is None or lower is None:
        return _forced(ranks, edges, same_clock=same_clock)
    offsets, uncertainty = [], 0
    bounded = True
    for high, low in zip(upper, lower, strict=True):
        if high is None or low is None:
            bounded = False
            one = high if high is not None else -low if low is not None else 0
            offsets.append(min(one, 0) if high is not None else max(one, 0))
        else:
            offsets.append((high - low) // 2)
            uncertainty = max(uncertainty, (high + low + 1) // 2)
    return Clocks(offsets=tuple(offsets), uncertainty=uncertainty if bounded else None)


def _shortest(ranks: int, edges: Sequence[tuple[int, int, int]]) -> list[int | None] | None:
    """Distances from rank 0 (Bellman-Ford); None where the bounds contradict each other."""
    found: list[int | None] = [0] + [None] * (ranks - 1)
    for _ in range(ranks):
        changed = False
        for a, b, slack in edges:
            reach = found[a]
            if reach is not None:
                new, old = reach + slack, found[b]
                if old is None or new < old:
                    found[b] = new
                    changed = True
        if not changed:
            return found
    return None


def _forced(ranks: int, edges: Sequence[tuple[int, int, int]], *, same_clock: bool) -> Clocks:
    """The least relaxation of all bounds that removes the contradiction, by bisection."""
    low, high = 0, max((-slack for *_, slack in edges), default=0)
    high = max(high, 1)
    while high - low > 1:
        middle = (low + high) // 2
        relaxed = [(a, b, slack + middle) for a, b, slack in edges]
        if _shortest(ranks, relaxed) is None:
            low = middle
        else:
            high = middle
    relaxed_orders = [(b, 0, a, slack + high) for a, b, slack in edges]
    fixed = align(ranks, relaxed_orders, same_clock=same_clock)
    return Clocks(offsets=fixed.offsets, uncertainty=fixed.uncertainty, contradiction=high)
