"""Rehearsal: the forward and the backward with which PyTorch's stages find the shapes of tensors.

In the first step, and in the first one behind an evaluation, a stage runs both once before it does
so for the microbatches; the first stage needs no gradient of its input and runs no backward:

    stage 0  F          F0 F1 …    one forward less is recovered, for want of its backward
    stage 1  F B        F0 B0 …
"""

from collections.abc import Sequence
from dataclasses import replace

from unbubble.action import Kind
from unbubble.trace.observed import Observed, Seen
from unbubble.trace.recover import BY_LINKS

REHEARSED = "a forward and a backward before the step, as PyTorch finds shapes; they are left out"


def without_rehearsal(observed: Sequence[Observed]) -> Sequence[Observed]:
    """A pipeline's ranks without it, where their actions are recovered and all ranks but the first
    have one microbatch more than that, which they were done with before they began another."""
    if not all(BY_LINKS in one.recovered for one in observed):
        return observed
    first, *others = (sum(seen.action.kind is Kind.F for seen in one.actions) for one in observed)
    if not others or any(count != first + 1 for count in others):
        return observed
    if not all(_begins(one.actions) for one in observed[1:]):
        return observed
    return [observed[0], *map(_without, observed[1:])]


def _begins(actions: Sequence[Seen]) -> bool:
    return [seen.action[::2] for seen in actions[:2]] == [(Kind.F, 0), (Kind.B, 0)]


def _without(one: Observed) -> Observed:
    later = tuple(
        seen._replace(action=seen.action._replace(microbatch=seen.action.microbatch - 1))
        for seen in one.actions[2:]
    )
    return replace(one, actions=later, recovered=(*one.recovered, REHEARSED))
