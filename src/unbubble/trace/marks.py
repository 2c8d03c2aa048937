"""Marks: the ranges on host threads, and which of them are actions of the pipeline."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from unbubble.action import TRANSFER, Kind
from unbubble.trace.names import NO_STAGE, Named, action_named


class Mark(NamedTuple):
    """A range on a host thread; times in ns from the file's base."""

    start: int
    end: int
    name: str
    thread: Any


def named_in(marks: Sequence[Mark]) -> dict[Mark, Named]:
    """The ranges that name an action of the pipeline, by start.

    Within PyTorch's own range may stand someone's around the stage's method, which is tighter:
    that one is the action, under PyTorch's name. Of others within each other it is the outer.
    """
    found: dict[Mark, Named] = {}
    outer: dict[Any, Mark] = {}
    methods: list[Mark] = []
    for mark in marks:
        named = action_named(mark.name)
        if named is None:
            continue
        around = outer.get(mark.thread)
        if around is None or mark.end > around.end:
            outer[mark.thread] = around = mark
        if around is mark or named.action.kind in TRANSFER:
            found[mark] = named
            methods += [mark] * named.tight
        elif around in found and _calls(found[around], named):
            action = found.pop(around).action._replace(stage=named.action.stage)
            found[mark] = named._replace(action=action)
    if any(found[mark].action.kind is Kind.W for mark in methods):
        for mark in methods:  # the method of a backward is half of one where weights have one
            if (action := found[mark].action).kind is Kind.B:
                found[mark] = found[mark]._replace(action=action._replace(kind=Kind.I))
    return found


def _calls(around: Named, within: Named) -> bool:
    """Whether an action that PyTorch names may be the call of a stage's method within it."""
    action, method = around.action, within.action
    return (
        within.tight
        and not around.tight
        and action.pair is None
        and action.stage in (NO_STAGE, method.stage)
        and action.microbatch == method.microbatch
        and (action.kind is Kind.F) == (method.kind is Kind.F)
    )
