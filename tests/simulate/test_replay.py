"""Measured steps simulated again with their own durations."""

import pytest

from unbubble import Costs, simulate
from unbubble.costs import Edge
from unbubble.families import generate
from unbubble.simulate.replay import replay, seen_lags


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dualpipe", "dualpipe-v"])
def test_a_step_without_gaps_is_its_own_replay(name):
    # an overlapped pair, which has two codes, was once counted twice
    order = generate(name, 2, 8)
    step = simulate(order, Costs.uniform(order.placement, forward=8, overlapped=20))
    again = replay(step)
    assert (again.starts, again.ends) == (step.starts, step.ends)


def test_the_way_of_inputs_to_an_idle_rank_is_seen_without_transfers():
    order = generate("gpipe", 2, 1)
    costs = Costs.uniform(order.placement, forward=8, backward=20, p2p=3)
    step = simulate(order, costs)
    assert costs.edge == Edge(latency=3)
    assert [list(row) for row in seen_lags(step)] == [[0, 3], [3, 0]]
    assert replay(step, seen_lags(step)).makespan == step.makespan
