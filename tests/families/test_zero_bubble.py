"""ZB-H1, ZB-H2, ZB-V: complete, free of deadlock, as short and as small as their formulas say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbubble.costs import Costs
from unbubble.families import generate
from unbubble.schedule.check import check
from unbubble.simulate import simulate

SMALL = st.integers(1, 12)
TIMES = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))


@given(st.sampled_from(["zb-h1", "zb-h2", "zb-v"]), SMALL, SMALL)
def test_any_p_and_m_make_a_complete_schedule_without_deadlock(name, p, m):
    schedule = generate(name, p, m)
    assert check(schedule).good
    assert schedule.microbatches == m


@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 4), (4, 8), (8, 32), (5, 17)])
@pytest.mark.parametrize("times", [(1, 1, 1), (10, 10, 8), (5, 7, 4), (3, 4, 2)])
def test_bubble_times_are_the_closed_forms_by_span(p, m, times):
    f, i, w = times
    for name, per_rank in (("zb-h1", f + i - w), ("zb-h2", f + i - 2 * w)):
        schedule = generate(name, p, m)
        costs = Costs.uniform(schedule.placement, forward=f, backward_input=i, backward_weight=w)
        idle = simulate(schedule, costs).span - m * (f + i + w)
        assert idle == (p - 1) * max(per_rank, 0)


def test_zb_v_has_no_bubble_for_equal_times():
    schedule = generate("zb-v", 8, 32)
    assert simulate(schedule, Costs.uniform(schedule.placement)).bubble_fraction_span == 0


@pytest.mark.parametrize("p", range(1, 9))
def test_zb_v_is_pytorchs_order(p):
    from torch.distributed.pipelining.schedules import ScheduleZBVZeroBubble

    for m in (1, p, 2 * p - 1, 2 * p, 3 * p + 1, 6 * p):
        theirs = ScheduleZBVZeroBubble.__new__(ScheduleZBVZeroBubble)
        theirs.pp_group_size, theirs._num_stages, theirs._n_microbatches = p, 2 * p, m
        theirs.num_stages = 2 * p
        ours = generate("ZBVZeroBubble", p, m)
        for rank in range(p):
            order = theirs._calculate_single_rank_operations(rank)
            assert [str(a) for a in ours.actions(rank)] == [str(a) for a in order if a]
