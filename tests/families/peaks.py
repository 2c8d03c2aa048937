"""Activations in flight, counted off the order alone: an oracle without times."""

from fractions import Fraction

from unbubble.action import KIND_MASK, Kind


def peaks(schedule):
    """For every rank the most microbatches (of the whole rank's layers) whose activations it holds,
    each held whole from its F to its B or W."""
    found = []
    for rank, row in enumerate(schedule.codes):
        held = most = 0
        for code in row:
            if code & KIND_MASK == Kind.F:
                held += 1
                most = max(most, held)
            elif code & KIND_MASK in (Kind.B, Kind.W):
                held -= 1
        placement = schedule.placement
        found.append(Fraction(most, len(placement.stages_of(rank)) // placement.copies))
    return found
