"""A rank's order from *lanes*: most schedules are a few lanes of actions woven with delays.

    forwards   0 1 2 3              delay 0
    backwards      a b c d          delay 2
    woven      0 1 2 a 3 b c d      1F1B on the last but two of the ranks

Everything here works on whole runs of codes, so a row of millions costs milliseconds.
"""

from array import array
from collections.abc import Iterable
from itertools import chain, pairwise

from unbubble.action import MICROBATCH_SHIFT, pack

Lane = tuple["array[int] | range", int]
"""Codes, and the round in which the first of them runs."""


def run(kind: int, stage: int, start: int, stop: int) -> range:
    """The codes of one kind and stage on microbatches start … stop − 1."""
    return range(pack(kind, stage, start), pack(kind, stage, stop), 1 << MICROBATCH_SHIFT)


def array_of(*runs: Iterable[int]) -> "array[int]":
    """A row of codes: the runs one after another."""
    return array("q", chain.from_iterable(runs))


def weave(*lanes: Lane) -> "array[int]":
    """One action of every lane that is running, in the order of the lanes, round after round."""
    cuts = sorted({at for codes, delay in lanes for at in (delay, delay + len(codes))})
    row = array("q")
    for start, stop in pairwise(cuts):
        running = [
            codes[start - delay : stop - delay]
            for codes, delay in lanes
            if delay <= start and stop <= delay + len(codes)
        ]
        part = array("q", bytes(8 * len(running) * (stop - start)))
        for place, codes in enumerate(running):
            part[place :: len(running)] = array("q", codes)
        row.extend(part)
    return row


def in_turn(*lanes: "array[int] | range") -> "array[int]":
    """One action of each lane after the other; the lanes are equally long."""
    return weave(*((lane, 0) for lane in lanes))
