"""Backfilling: never longer, never more memory, every action still once."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.families.peaks import peaks
from tests.uncompiled import uncompiled

from unbubble.action import Kind, unpack
from unbubble.costs import Costs
from unbubble.packing import backfill as module
from unbubble.packing import kernel
from unbubble.packing.backfill import backfill, late_weights
from unbubble.packing.building_block import Slots, repeat
from unbubble.packing.memory import whole
from unbubble.schedule import Schedule
from unbubble.schedule.check import check
from unbubble.schedule.placement import v_shape
from unbubble.simulate import simulate

TIME = st.integers(0, 9)


def v_min(p):
    pause = 0 if p % 3 else 2
    return [Slots(r, 2 * p - 1 - r, 2 * p + pause + r, 4 * p - 1 + pause - r) for r in range(p)]


@given(st.integers(1, 6), st.integers(1, 12), st.tuples(TIME, TIME, TIME), TIME)
@settings(max_examples=100, deadline=None)
def test_nothing_is_lost_delayed_or_held_beyond_the_room(p, m, times, c):
    placement, room = v_shape(p), (p + 4) // 3
    memory = whole(placement, room)
    f, i, w = times
    costs = Costs.uniform(placement, forward=f, backward_input=i, backward_weight=w, p2p=c)
    before = Schedule.of_codes(late_weights(repeat(v_min(p), m), memory), placement)
    after = Schedule.of_codes(backfill(before, costs, memory), placement)
    assert check(before).good
    assert check(after).good
    assert [Counter(row) for row in after.codes] == [Counter(row) for row in before.codes]
    assert max(peaks(after)) <= room
    assert max(peaks(before)) <= room


def slowly(schedule, memory, take, c):
    """Backfilling by its rule, one moment after the other: every rank that is free looks along what
    is left of its order for the first that may run now. `take[kind]` is at least 1."""
    placement, last = schedule.placement, schedule.placement.num_stages - 1
    left = [list(schedule.actions(rank)) for rank in range(schedule.ranks)]
    rows, free, held = [[] for _ in left], [0] * len(left), [0] * len(left)
    ends = {}

    def arrives(action):
        kind, stage, microbatch = action[:3]
        if kind is Kind.F:
            source = (Kind.F, stage - 1, microbatch) if stage else None
        elif kind is Kind.I:
            source = (Kind.I, stage + 1, microbatch) if stage < last else (Kind.F, last, microbatch)
        else:
            source = Kind.I, stage, microbatch
        if source is None:
            return 0
        crosses = placement.rank_of[source[1]] != placement.rank_of[stage]
        return ends.get(source, 10**9) + c * crosses

    def choice(rank, now):
        todo = left[rank]
        room = memory.capacity[rank] - held[rank]
        change = [memory.changes(action.codes)[0] for action in todo]
        limit = arrives(todo[0]) if change[0] <= room else 10**9
        if limit <= now:
            return 0
        ahead = [max(sum(change[:i]) for i in range(n + 1)) for n in range(len(todo))]
        seen = {todo[0][:2] if todo[0].kind is not Kind.W else Kind.W}
        for n, action in enumerate(todo[1:], 1):
            queue = action[:2] if action.kind is not Kind.W else Kind.W
            first, _ = queue not in seen, seen.add(queue)
            fits = change[n] <= 0 or change[n] + ahead[n] <= room
            if first and fits and arrives(action) <= now and now + take[action.kind] <= limit:
                return n
        return None

    now = -1
    while any(left):
        now += 1
        for rank, todo in enumerate(left):
            if todo and free[rank] <= now and (n := choice(rank, now)) is not None:
                action = todo.pop(n)
                rows[rank].append(action)
                ends[action[:3]] = free[rank] = now + take[action.kind]
                held[rank] += memory.changes(action.codes)[0]
    return rows


@given(
    st.integers(1, 4),
    st.integers(1, 7),
    st.tuples(*[st.integers(1, 9)] * 3),
    TIME,
    st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_it_is_what_the_rule_says_compiled_or_not(p, m, times, c, more):
    placement = v_shape(p)
    memory = whole(placement, (p + 4) // 3 + more)
    f, i, w = times
    f_i_w = dict(zip(("forward", "backward_input", "backward_weight"), times, strict=True))
    stages = {kind: [time] * placement.num_stages for kind, time in f_i_w.items()}
    costs = Costs.uniform(placement, **stages, p2p=c)
    before = Schedule.of_codes(late_weights(repeat(v_min(p), m), memory), placement)
    expected = slowly(before, memory, {Kind.F: f, Kind.I: i, Kind.W: w}, c)
    plain = uncompiled(kernel)
    for one in (kernel, plain):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "kernel", one)
            rows = backfill(before, costs, memory)
        assert [list(map(unpack, row)) for row in rows] == expected


def test_a_building_block_is_repeated_every_six_slots():
    rows = repeat([Slots(0, 3, 4, 7), Slots(1, 2, 5, 6)], 2)
    schedule = Schedule.of_codes(rows, v_shape(2))
    assert [" ".join(map(str, schedule.actions(rank))) for rank in range(2)] == [
        "0F0 3F0 3I0 0F1 0I0 3F1 3I1 0I1",
        "1F0 2F0 2I0 1I0 1F1 2F1 2I1 1I1",
    ]


def test_weights_as_late_as_memory_allows():
    rows = repeat([Slots(0, 1, 2, 3)], 3)
    schedule = Schedule.of_codes(late_weights(rows, whole(v_shape(1), 1)), v_shape(1))
    assert " ".join(map(str, schedule.actions(0))) == (
        "0F0 1F0 1I0 0I0 1W0 0F1 0W0 1F1 1I1 0I1 1W1 0F2 0W1 1F2 1I2 0I2 1W2 0W2"
    )


def test_a_later_forward_runs_where_the_rank_would_wait():
    """Rank 0 waits three slots for the first microbatch to come back; F1 is free to run."""
    placement = v_shape(2)
    memory = whole(placement, 2)
    order = Schedule.of_codes(late_weights(repeat(v_min(2), 2), memory), placement)
    costs = Costs.uniform(placement)
    filled = Schedule.of_codes(backfill(order, costs, memory), placement)
    assert " ".join(map(str, filled.actions(0))).startswith("0F0 0F1 3F0 3I0")
    assert simulate(filled, costs).span < simulate(order, costs).span
