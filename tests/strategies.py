"""Hypothesis strategies for schedules, and what may have gone wrong with one.

The makers take a `random.Random`, so that long campaigns run them without Hypothesis.
"""

import re

from hypothesis import strategies as st

from unbubble.action import Action, Kind, overlap
from unbubble.schedule import Placement, Schedule
from unbubble.schedule.lowering import RECEIVES, lower
from unbubble.schedule.placement import bidirectional, linear, looping, v_shape
from unbubble.schedule.whole_stage import add_reduce_grad, add_unshard

BACKWARDS = (Kind.B, Kind.I)


def random_placement(rng, ranks=4):
    p = rng.randint(1, ranks)
    kind = rng.choice(["linear", "looping", "v", "copies", "any"])
    if kind == "linear":
        return linear(p)
    if kind == "looping":
        return looping(p, 2)
    if kind == "v":
        return v_shape(p)
    if kind == "copies":
        return bidirectional(p)
    stages = list(range(p)) + [rng.randrange(p) for _ in range(rng.randint(0, 3))]
    rng.shuffle(stages)
    return Placement(tuple(stages))


def random_order(rng, *, ranks=4, microbatches=4):
    """A complete compute-only schedule in an order that can run; some backwards are split, some
    neighbouring forwards and backwards joined."""
    placement = random_placement(rng, ranks)
    stages, copies = placement.num_stages, placement.copies
    m = rng.randint(1, microbatches)
    split = rng.choice([0, 1, 0.5])
    pairs = rng.choice([0, 0, 0.5])
    copy_of = [rng.randrange(copies) for _ in range(m)]
    kinds = {
        (stage, mb): (Kind.I if rng.random() < split else Kind.B)
        for stage in range(stages * copies)
        for mb in range(m)
    }
    ready = [Action(Kind.F, copy_of[mb] * stages, mb) for mb in range(m)]
    rows = [[] for _ in range(placement.ranks)]
    while ready:
        action = ready.pop(rng.randrange(len(ready)))
        kind, stage, mb = action[:3]
        made = _enabled(action, placement, kinds)
        row = rows[placement.rank_of[stage]]
        last = row[-1] if row else None
        if (
            kind in BACKWARDS
            and last is not None
            and last.kind is Kind.F
            and last[1:3] != (stage, mb)
            and rng.random() < pairs
            and _independent(rows, last, action, placement)
        ):
            row[-1] = overlap(last, action)
        else:
            row.append(action)
        ready += made
    return Schedule.of(rows, placement, name="random")


def _enabled(action, placement, kinds):
    kind, stage, mb = action[:3]
    if kind is Kind.F:
        if placement.is_last(stage):
            return [Action(kinds[stage, mb], stage, mb)]
        return [Action(Kind.F, stage + 1, mb)]
    made = []
    if kind in BACKWARDS and not placement.is_first(stage):
        made.append(Action(kinds[stage - 1, mb], stage - 1, mb))
    if kind is Kind.I:
        made.append(Action(Kind.W, stage, mb))
    return made


def _independent(rows, forward, backward, placement):
    """Whether nothing has run on the forward's output yet, so that it may end with the backward."""
    done = {part[:3] for row in rows for action in row for part in action.parts}
    after = [
        (Kind.F, forward.stage + 1, forward.microbatch),
        (Kind.B, forward.stage, forward.microbatch),
        (Kind.I, forward.stage, forward.microbatch),
    ]
    return not done.intersection(after)


def random_schedule(rng, **sizes):
    """A complete schedule, compute-only or lowered, with or without actions of whole stages."""
    schedule = random_order(rng, **sizes)
    if rng.random() < 0.3:
        schedule = add_reduce_grad(schedule)
    if rng.random() < 0.3:
        schedule = add_unshard(schedule, rng.randint(1, 3))
    if rng.random() < 0.7:
        schedule = lower(schedule, rng.choice(RECEIVES))
    return schedule


def mutated(rng, schedule, times=None):
    """Actions dropped, doubled, swapped, moved (also to another rank), renamed."""
    rows = [list(schedule.actions(rank)) for rank in range(schedule.ranks)]
    for _ in range(times if times is not None else rng.choice([1, 1, 1, 2, 3, 6])):
        full = [row for row in rows if row]
        if not full:
            break
        row = rng.choice(full)
        i = rng.randrange(len(row))
        what = rng.choice(["drop", "double", "swap", "adjacent", "move", "rank", "rename"])
        if what == "drop":
            del row[i]
        elif what == "double":
            row.insert(rng.randint(0, len(row)), row[i])
        elif what == "swap":
            j = rng.randrange(len(row))
            row[i], row[j] = row[j], row[i]
        elif what == "adjacent" and i:
            row[i - 1], row[i] = row[i], row[i - 1]
        elif what == "move":
            row.insert(rng.randint(0, len(row) - 1), row.pop(i))
        elif what == "rank" and rng.random() < 0.3:
            other = rng.choice(rows)
            other.insert(rng.randint(0, len(other)), row.pop(i))
        elif what == "rename" and row[i].pair is None:
            row[i] = _renamed(rng, row[i], schedule)
    return Schedule.of(rows, schedule.placement, name="mutated", flush=rng.random() < 0.9)


def _renamed(rng, action, schedule):
    stage = rng.choice(schedule.placement.stages_of(schedule.placement.rank_of[action.stage]))
    kind = rng.choice([action.kind, *Kind])
    if kind is Kind.OVERLAP_F_B:
        kind = Kind.F
    whole = kind in (Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD, Kind.CLIP, Kind.OPTIMIZER)
    microbatch = -1 if whole else rng.choice([max(action.microbatch, 0), rng.randint(0, 5)])
    return Action(kind, stage, microbatch)


randoms = st.randoms(use_true_random=False)
schedules = randoms.map(random_schedule)
mutations = randoms.map(lambda rng: mutated(rng, random_schedule(rng)))


def garbled(rng, text):
    """A schedule's file with a few characters, cells and lines gone wrong."""
    for _ in range(rng.choice([1, 1, 2, 4])):
        i = rng.randrange(len(text) + 1)
        what = rng.choice(["digit", "character", "cut", "cell", "line", "repeat"])
        if what == "digit":
            text = (
                re.sub("[0-9]", rng.choice("0123456789"), text[:i][::-1], count=1)[::-1] + text[i:]
            )
        elif what == "character":
            text = text[:i] + rng.choice('0123456789FBIW,;()\n "-\x00é_') + text[i + 1 :]
        elif what == "cut":
            text = text[:i] + text[i + rng.randint(1, 12) :]
        elif what == "cell":
            text = text[:i] + rng.choice([",0F0junk,", ",999999F0,", ",0F2147483646,"]) + text[i:]
        elif what == "line":
            text = text[:i] + "\n" + text[i:]
        else:
            text = text[:i] + text[max(0, i - 20) :]
    return text
