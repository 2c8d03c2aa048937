"""Chimera: the published bubble, two merged pipelines, further units."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.families.peaks import peaks

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.simulate import simulate

EVEN = st.integers(1, 6).map(lambda half: 2 * half)
TIME = st.integers(1, 12)


def timeline_of(p, m, F, B):
    schedule = generate("chimera", p, m)
    return simulate(schedule, Costs.uniform(schedule.placement, forward=F, backward=B))


@pytest.mark.parametrize("p", [2, 4, 6, 8, 16])
def test_the_published_bubble_at_m_equal_to_p(p):
    m = p
    assert timeline_of(p, m, 1, 1).bubble_fraction == Fraction(p - 2, 2 * m + p - 2)
    assert timeline_of(p, m, 1, 2).bubble_fraction == Fraction(p - 2) / (Fraction(3 * m, 2) + p - 2)


@settings(max_examples=100, deadline=None)
@given(EVEN, st.integers(1, 4), TIME, TIME)
def test_further_units_cost_the_difference_of_forward_and_backward(p, units, F, B):
    expected = (p - 2) * (max(F, B) + (units - 1) * abs(B - F))
    assert set(timeline_of(p, units * p, F, B).idle) == {expected}


@settings(max_examples=50, deadline=None)
@given(EVEN, st.integers(1, 4))
def test_microbatches_in_flight(p, units):
    half = p // 2
    expected = [half + 1 + min(r, p - 1 - r) for r in range(p)]
    assert peaks(generate("chimera", p, units * p)) == [min(x, p) for x in expected]


@settings(max_examples=50, deadline=None)
@given(EVEN, st.integers(1, 30))
def test_each_direction_runs_its_microbatches_in_order(p, m):
    schedule = generate("chimera", p, m)
    for rank in range(p):
        for stage in schedule.placement.stages_of(rank):
            for kind in "FB":
                order = [
                    a.microbatch
                    for a in schedule.actions(rank)
                    if a.stage == stage and a.kind.name == kind
                ]
                assert order == sorted(order)


def test_the_first_half_of_a_unit_goes_down():
    schedule = generate("chimera", 4, 10)
    down = {a.microbatch for a in schedule.actions(0) if a.stage == 0}
    assert down == {0, 1, 4, 5, 8}


def test_an_odd_number_of_ranks_has_no_middle():
    with pytest.raises(InputError, match=r"p is even.*nearest p that work: 4 or 6"):
        generate("chimera", 5, 10)
