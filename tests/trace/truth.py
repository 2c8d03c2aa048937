"""The truth beside gloo traces: what a clock beside the profiler took of every call of a stage.

`truth_rankN.json` is a list of [what, stage, microbatch, start, end] in Unix ns: the methods of
METHODS, `step` (its number in the microbatch's place) and, where they were taken, `loss` and
`optimizer`.
"""

import json
from array import array

from unbubble.action import Action, Kind
from unbubble.schedule import Schedule
from unbubble.simulate import Timeline

METHODS = {
    "forward_one_chunk": Kind.F,
    "backward_one_chunk": Kind.B,
    "backward_input_one_chunk": Kind.I,
    "backward_weight_one_chunk": Kind.W,
}
CLASSES = ("bubble", "imbalance_static", "imbalance_jitter", "communication", "overhead")


def truth(folder, step, like, zero, *, losses=False):
    """The step with the actions' true times; what was not taken is that of the trace: transfers,
    and the optimizer in older files. With `losses` a forward lasts until its loss was there, which
    is what a trace shows where it cannot tell the two apart."""
    rows, starts, ends, finish = [], [], [], 0
    for rank, path in enumerate(sorted(folder.glob("truth_rank*.json"))):
        events = json.loads(path.read_text())
        begin, until = next(e[3:] for e in events if e[0] == "step" and e[2] == step)
        events = [e for e in events if begin <= e[3] <= until]
        named = any(e[0] == "backward_input_one_chunk" for e in events)
        split = like.schedule.splits_backward and not named
        kinds = METHODS | ({"backward_one_chunk": Kind.I} if split else {})
        ended = {tuple(e[1:3]): e[4] for e in events if losses and e[0] == "loss"}
        optimized = [e for e in events if e[0] == "optimizer"]
        own = [
            (Action(kinds[e[0]], *e[1:3]), e[3] - zero, _end(e, ended) - zero)
            for e in events
            if e[0] in METHODS
        ]
        own += [
            (e.action, e.start, e.end)
            for e in like.events(rank)
            if not e.action.is_compute and not (optimized and e.action.kind is Kind.OPTIMIZER)
        ]
        own += [
            (Action(Kind.OPTIMIZER, own[0][0].stage), e[3] - zero, e[4] - zero) for e in optimized
        ]
        for column, values in zip((rows, starts, ends), zip(*own, strict=True), strict=True):
            column.append(values)
        finish = max(finish, until - zero)
    return Timeline(
        schedule=Schedule.of(rows, like.schedule.placement),
        starts=tuple(array("q", row) for row in starts),
        ends=tuple(array("q", row) for row in ends),
        begin=min(row[0] for row in starts),
        finish=finish,
        transfers=like.transfers,
    )


def _end(event, ended):
    """When a call was over, or for a forward its loss."""
    what, *place, _, end = event
    return ended.get(tuple(place), end) if what == "forward_one_chunk" else end


def errors(own, true):
    """Of a rank's attribution against that of the truth: compute, and that of the actions alone,
    as shares of the true one; the other classes as shares of the step."""
    apart = true.compute - true.optimizer
    found = {
        "compute": own.compute / true.compute - 1,
        "actions": (own.compute - own.optimizer) / apart - 1,
    }
    found |= {part: (getattr(own, part) - getattr(true, part)) / true.total for part in CLASSES}
    return {what: float(error) for what, error in found.items()}
