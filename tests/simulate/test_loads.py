"""What one microbatch costs a rank, the communication that nothing hides included."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from tests.strategies_costs import cases, lowered, orders

from unbubble.costs import Costs, Duration, Edge, StageCosts
from unbubble.families import generate
from unbubble.formulas import imbalance_factor
from unbubble.simulate import Deadlock, simulate
from unbubble.simulate.loads import rank_loads

INSIDE = StageCosts(forward=Duration(1, 1), backward=Duration(2))
COSTS = Costs(stages=(INSIDE,) * 4, edge=Edge(latency=3), send_host=1, recv_host=2)


def loads(costs, schedule="1f1b", ranks=4, microbatches=8):
    return rank_loads(simulate(generate(schedule, ranks, microbatches), costs), costs)


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        # F = 2 with the communication inside it, B = 2; a latency beside compute loads no rank
        (COSTS, [4, 4, 4, 4]),
        # posts: rank 0 sends and receives once, those in the middle twice
        (replace(COSTS, channel="link"), [7, 10, 10, 7]),
        # and where transfers hold the ranks, 3 on the wire for each of them
        (replace(COSTS, overlap=False), [13, 22, 22, 13]),
        # of each pair of ranks its own
        (
            replace(COSTS, overlap=False, edges={(1, 2): Edge(5), (3, 2): Edge(0)}),
            [13, 24, 21, 10],
        ),
    ],
)
def test_exposed_communication_is_in_the_load(costs, expected):
    """Sends, receives and transfers that hold their ranks were left out, so that ranks in the
    middle of a pipeline, which have twice as many, had the load of its ends."""
    assert loads(costs) == tuple(expected)


def test_a_gradient_is_as_large_as_its_activation():
    sizes = [replace(INSIDE, output_bytes=size) for size in (2, 3, 5, 7)]
    edge = Edge(0, Fraction(1))
    costs = Costs(stages=tuple(sizes), edge=edge, overlap=False)
    assert loads(costs) == (4 + 2 * 2, 4 + 2 * 2 + 2 * 3, 4 + 2 * 3 + 2 * 5, 4 + 2 * 5)


def test_stages_that_share_a_rank_hand_over_for_nothing():
    one = replace(COSTS, stages=(INSIDE,) * 8, overlap=False, send_host=0, recv_host=0)
    # rank 3 of a V hands stage 3 to stage 4 itself; rank 0 holds the first and the last stage
    split = replace(INSIDE, backward_input=Duration(1), backward_weight=Duration(1))
    costs = replace(one, stages=(split,) * 8)
    assert loads(costs, "zb-v") == (8 + 12, 8 + 24, 8 + 24, 8 + 12)


@given(cases(lowered(orders())))
@settings(max_examples=150, deadline=None)
def test_no_step_is_shorter_than_the_load_of_a_rank(case):
    """Work, posts and what holds a rank never happen at the same time on it."""
    schedule, costs = case
    try:
        timeline = simulate(schedule, costs)
    except Deadlock:
        return
    assert max(rank_loads(timeline, costs)) * schedule.microbatches <= timeline.length


def test_the_first_order_step_beside_the_simulated_one():
    """4 ranks, F = B = 2, each transfer holds its ranks for 1: the slowest load is 8, not 4."""
    costs = replace(COSTS, edge=Edge(latency=1), overlap=False, send_host=0, recv_host=0)
    timeline = simulate(generate("1f1b", 4, 64), costs, receive="rendezvous")
    found = rank_loads(timeline, costs)
    assert imbalance_factor(found) == Fraction(8, 7)
    assert (64 + 3) * max(found) == 536
    assert abs(timeline.makespan - 536) < 0.05 * 536
