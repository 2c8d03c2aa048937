"""Jitter: by seed, of the right size, and a pipeline pays more for it than a single rank."""

import statistics

import pytest

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.simulate import simulate
from unbubble.simulate.jitter import Spread, jittered


def case(ranks, microbatches, **more):
    order = generate("1f1b", ranks, microbatches)
    return order, Costs.uniform(order.placement, forward=10**6, backward=2 * 10**6, **more)


def test_the_same_seed_gives_the_same_steps():
    steps = [jittered(*case(4, 8), Spread(action=0.1), draws=50, seed=s) for s in (3, 3, 4)]
    assert steps[0].ticks == steps[1].ticks
    assert steps[0].ticks != steps[2].ticks
    assert list(steps[0].ticks) == sorted(steps[0].ticks)


def test_no_spread_is_the_plan():
    order, costs = case(4, 8, p2p=1000)
    steps = jittered(order, costs, Spread(), draws=7)
    assert {*steps.ticks} == {steps.planned}
    assert steps.planned / steps.ticks_per_unit == simulate(order, costs).finish


@pytest.mark.parametrize(
    ("spread", "expected"),
    [(Spread(action=0.2), 0.2 * (5 / 9 / 16) ** 0.5), (Spread(rank=0.2), 0.2)],
)
def test_the_spread_of_one_rank_is_that_of_a_sum(spread, expected):
    steps = jittered(*case(1, 16), spread, draws=4000, seed=1)
    assert steps.mean == pytest.approx(steps.planned, rel=0.02)
    assert statistics.stdev(steps.ticks) / steps.planned == pytest.approx(expected, rel=0.1)


def test_a_pipeline_waits_for_the_slowest():
    steps = jittered(*case(8, 16), Spread(action=0.1), draws=300)
    assert steps.mean > 1.03 * steps.planned
    assert steps.percentile(50) < steps.percentile(95) < steps.percentile(99)
    assert steps.percentile(100) == steps.ticks[-1]


def test_only_transfers_vary():
    order, costs = case(3, 4, p2p=10**5)
    steps = jittered(order, costs, Spread(transfer=0.5), draws=200)
    assert len({*steps.ticks}) > 1
    assert steps.ticks[0] / steps.ticks_per_unit > simulate(*case(3, 4)).finish


def test_with_sends_and_receives_too():
    from dataclasses import replace

    order, costs = case(3, 4, p2p=10**5)
    steps = jittered(order, replace(costs, channel="rank"), Spread(transfer=0.5), draws=50)
    assert len({*steps.ticks}) > 1


@pytest.mark.parametrize(
    ("bad", "message"),
    [(lambda: Spread(action=-0.1), "spread of action is -0.1"),
     (lambda: Spread(rank=float("nan")), "spread of rank is nan"),
     (lambda: jittered(*case(1, 1), Spread(), draws=0), "0 draws"),
     (lambda: jittered(*case(1, 1), Spread(), draws=1).percentile(0), "above 0")],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(bad, message):
    with pytest.raises(InputError, match=message):
        bad()


def test_short_times_vary_too():
    order = generate("1f1b", 2, 4)
    steps = jittered(order, Costs.uniform(order.placement), Spread(action=0.01), draws=100)
    assert len({*steps.ticks}) == 100
    assert steps.planned / steps.ticks_per_unit == 15
