"""Fillings: what they promise is what the simulation finds, compiled or not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.uncompiled import uncompiled

from unbubble.action import unpack
from unbubble.costs import Costs
from unbubble.packing import ahead, filling, kernel
from unbubble.packing.filling import Frame
from unbubble.packing.memory import in_halves
from unbubble.schedule.check import check
from unbubble.schedule.placement import linear
from unbubble.simulate import simulate

TIME = st.integers(0, 9)


@st.composite
def frames(draw):
    """A frame on one stage a rank, and its costs."""
    p, m = draw(st.integers(1, 5)), draw(st.integers(1, 10))
    ranks = st.lists(TIME, min_size=p, max_size=p)
    placement = linear(p)
    costs = Costs.uniform(
        placement,
        forward=draw(ranks),
        backward_input=draw(ranks),
        backward_weight=draw(ranks),
        p2p=draw(TIME),
    )
    room = draw(st.integers(1, 2 * p))
    orders = list(ahead.orders(p, m, room, costs))
    return Frame(draw(st.sampled_from(orders)), placement, costs, in_halves(placement, costs, room))


def frame_of(p, m, *, counts, room, **times):
    """One stage a rank, with these numbers of forwards ahead."""
    placement = linear(p)
    costs = Costs.uniform(placement, **times)
    rows = [ahead.in_turn_after(count, rank, m) for rank, count in enumerate(counts)]
    return Frame(rows, placement, costs, in_halves(placement, costs, room))


def words(filled, rank):
    return " ".join(str(action)[1:] for action in filled.schedule().actions(rank))


@given(frames(), st.integers(0, 60))
@settings(max_examples=200, deadline=None)
def test_every_filling_is_complete_and_as_long_as_it_says(frame, more):
    for filled in (
        frame.patient(),
        frame.fill(frame.bound + more),
        frame.fill(frame.bound + more, strict=False),
        *(frame.fill(more, pace=True, urgent=urgent) for urgent in frame.urgencies()),
    ):
        schedule = filled.schedule()
        assert check(schedule).good
        assert simulate(schedule, frame.program.costs).span == filled.span >= frame.bound


@given(frames())
@settings(max_examples=60, deadline=None)
def test_compiled_and_uncompiled_agree(frame):
    compiled = [(f.span, f.nodes) for f in frame.fillings()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filling, "kernel", uncompiled(kernel))
        assert [(f.span, f.nodes) for f in frame.fillings()] == compiled


def test_a_weight_gradient_that_fits_a_gap_fills_it():
    frame = frame_of(
        2, 3, counts=[2, 1], room=4, forward=1, backward_input=1, backward_weight=1, p2p=1
    )
    assert words(frame.patient(), 0) == "F0 F1 I0 F2 I1 W0 W1 I2 W2"


def test_memory_calls_a_weight_gradient_before_the_forward_that_needs_it():
    tight = frame_of(2, 3, counts=[2, 1], room=2, forward=1, backward_input=1, backward_weight=1)
    assert words(tight.patient(), 0) == "F0 F1 I0 W0 F2 I1 W1 I2 W2"


def test_a_rank_waits_for_free_within_the_target_and_no_longer():
    """W takes 3, the gap is 2: a patient rank waits, one with no time to spare runs W."""
    frame = frame_of(
        2, 4, counts=[2, 1], room=8, forward=1, backward_input=1, backward_weight=3, p2p=1
    )
    assert words(frame.patient(), 0) == "F0 F1 I0 F2 I1 F3 I2 I3 W0 W1 W2 W3"
    assert words(frame.fill(frame.bound), 0) == "F0 F1 I0 F2 I1 F3 W0 I2 I3 W1 W2 W3"


def test_at_a_common_pace_a_rank_waits_as_long_as_another_had_to():
    """Rank 0 has to wait for its first gradient; what fills the others' gaps early then only delays
    it, and no time to wait is left to them later."""
    frame = frame_of(
        3, 6, counts=[3, 2, 1], room=9, forward=2, backward_input=2, backward_weight=3, p2p=1
    )
    target = max(frame.work)
    assert words(frame.fill(target), 2) == "F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 F4 I4 W2 F5 I5 W3 W4 W5"
    paced = frame.fill(target, pace=True)
    assert words(paced, 2) == "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5"


def test_nothing_but_memory_delays_what_is_urgent():
    """W takes 3, most gaps 2: a rank with no time to spare waits before its forwards all the same,
    until a gap is as long."""
    frame = frame_of(
        3, 6, counts=[3, 2, 1], room=9, forward=2, backward_input=2, backward_weight=3, p2p=1
    )
    _, forwards = frame.urgencies()
    filled = frame.fill(max(frame.work), urgent=forwards)
    assert words(filled, 2) == "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5"


def test_the_ranks_of_an_order_advance_together():
    frame = frame_of(2, 3, counts=[2, 1], room=4)
    names = " ".join(str(unpack(frame.program.codes[node])) for node in frame.order)
    assert names == "0F0 0F1 1F0 1I0 0I0 1F1 0F2 1I1 0I1 1F2 1I2 0I2"


def test_the_fewest_forwards_ahead_that_keep_the_idle_time_within_an_allowance():
    costs = Costs.uniform(linear(3), forward=2, backward_input=2, p2p=1)
    way = ahead.way_of(3, costs)
    assert way == ([2, 2, 2], [2, 2, 2], [0, 1, 1], [1, 1, 0])
    assert ahead.fewest(way, 9, 9, 0) == [7, 4, 1]
    assert ahead.fewest(way, 9, 9, 4) == [5, 2, 1]
    assert ahead.fewest(way, 9, 4, 0) == [4, 4, 1]
    assert ahead.fewest(way, 2, 9, 0) == [2, 2, 1]


def test_ranks_are_further_ahead_than_the_next_unless_they_hold_all_microbatches():
    assert ahead.descending([4, 4, 1], 1, 9) == [4, 3, 1]
    assert ahead.descending([4, 4, 4, 1], 2, 9) == [4, 2, 1, 1]
    assert ahead.descending([4, 4, 1], 1, 4) == [4, 4, 1]


class Counted(Frame):
    """Counts the fillings asked for."""

    asked = 0

    def fillings(self):
        for filled in super().fillings():
            self.asked += 1
            yield filled


def test_the_search_gives_a_frame_up_where_its_bound_is_met():
    placement = linear(2)
    costs = Costs.uniform(placement)
    memory = in_halves(placement, costs, 4)

    def counted(*counts):
        rows = [ahead.in_turn_after(count, rank, 4) for rank, count in enumerate(counts)]
        return Counted(rows, placement, costs, memory)

    best, worse = counted(3, 1), counted(1, 1)
    assert filling.shortest([best, worse]).span == best.bound < worse.bound
    assert best.asked == worse.asked == 1
    assert len(list(best.fillings())) == 35
