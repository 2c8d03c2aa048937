"""The step of a pipeline that never flushes is that of its steady state."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unbubble.costs import Costs, Tail
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.simulate import simulate
from unbubble.steady import period, step_time

TIMES = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(TIMES, st.integers(0, 4), st.integers(1, 9))
def test_pipedream_runs_at_the_pace_of_its_slowest_loop(stages, hop, m):
    """Ranks a to b hold b − a + 1 microbatches in turn, each of which goes there and back."""
    order = generate("pipedream", len(stages), m)
    forward, backward = ([stage[i] for stage in stages] for i in (0, 1))
    costs = Costs.uniform(order.placement, forward=forward, backward=backward, p2p=hop)
    slowest = max(
        Fraction(sum(forward[a : b + 1]) + sum(backward[a : b + 1]) + 2 * (b - a) * hop, b - a + 1)
        for a, b in combinations_with_replacement(range(len(stages)), 2)
    )
    assert step_time(simulate(order, costs), costs) == m * slowest * costs.ticks_per_unit


@pytest.mark.parametrize(
    "more", [{"tail": Tail(optimizer=1)}, {"channel": "link"}, {"overlap": False}]
)
def test_few_microbatches_have_the_pace_of_many_whatever_the_costs_add(more):
    """Sends or a tail made the order seem one's own: few microbatches were refused, and the pace of
    8 was taken before there was one."""
    paces = set()
    for m in (4, 8, 100):
        order = generate("pipedream", 2, m)
        costs = replace(Costs.uniform(order.placement, forward=1, backward=1, p2p=1), **more)
        paces.add(step_time(simulate(order, costs), costs) / m)
    assert len(paces) == 1


def test_a_step_with_a_flush_is_the_whole_of_it():
    order = generate("1f1b", 4, 8)
    costs = Costs.uniform(order.placement)
    assert step_time(simulate(order, costs), costs) == 33


def test_an_order_of_ones_own_must_be_long_enough():
    order = generate("pipedream", 4, 9)
    with pytest.raises(InputError, match="9 microbatches on 4 ranks never reach a steady state"):
        period(simulate(order, Costs.uniform(order.placement)))
