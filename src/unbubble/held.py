"""Held: the bytes that every rank holds, of weights in all the versions that it keeps."""

from typing import NamedTuple

from unbubble.costs import Costs
from unbubble.families.pipedream import weight_versions
from unbubble.simulate import Timeline
from unbubble.simulate.memory import memory


class Held(NamedTuple):
    """By rank: the bytes of its weights, and the most that it holds with activations."""

    weights: list[int]
    peak: list[int]


def held_bytes(timeline: Timeline, costs: Costs) -> Held | None:
    """What every rank holds in a step; None where the costs give no bytes."""
    if not costs.in_bytes:
        return None
    curves = memory(timeline, costs)
    versions = weight_versions(timeline.schedule)
    weights = [curve.base * kept for curve, kept in zip(curves, versions, strict=True)]
    peak = [own + int(curve.peak) - curve.base for own, curve in zip(weights, curves, strict=True)]
    return Held(weights, peak)
