"""What-if: each change does what it says, and the first order of the critical path agrees."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from tests.strategies_costs import cases, orders

from unbubble.costs import Costs, Tail
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.simulate import simulate
from unbubble.simulate.critical import critical_path
from unbubble.simulate.whatif import balanced, faster, finer_ticks, free_transfers, what_ifs

TENTH = Fraction(1, 10)


def test_the_slow_stage_is_what_pays():
    order = generate("1f1b", 4, 32)
    costs = Costs.uniform(order.placement, forward=[4, 4, 4, 6], backward=[8, 8, 8, 12], p2p=1)
    rows = what_ifs(order, costs, regenerate=lambda m: generate("1f1b", 4, m))
    changes = [row.change for row in rows]
    assert changes[0] == "all stages equal"
    assert changes[1] == "stage 3 10% faster"
    assert {"transfers free", "64 microbatches", "stage 0 10% faster"} < {*changes}
    assert all(row.gain >= 0 for row in rows)
    assert next(row.gain for row in rows if row.change == "no overhead") == 0


def test_a_change_is_exact():
    order = generate("gpipe", 1, 3)
    costs = Costs.uniform(order.placement, forward=3, backward=4)
    assert simulate(order, changed := faster(costs, 0, TENTH)).makespan == 189
    assert changed.ticks_per_unit == 10
    assert free_transfers(costs).edge.latency == 0
    with pytest.raises(InputError, match="stage 1 is not one of the 1 stages"):
        faster(costs, 1, TENTH)


def test_twice_the_microbatches_halve_the_bubble():
    order = generate("1f1b", 5, 16)
    (*_,) = rows = what_ifs(
        order, Costs.uniform(order.placement), regenerate=lambda m: generate("1f1b", 5, m)
    )
    (twice,) = [row for row in rows if row.change == "32 microbatches"]
    assert twice.step == (32 + 4) * 3
    assert twice.gain == 1 - Fraction(36, 2 * 20)


def test_balanced_stages_keep_the_work():
    order = generate("1f1b", 3, 8)
    costs = Costs.uniform(order.placement, forward=[1, 2, 5], backward=[3, 3, 4])
    timeline = simulate(order, equal := balanced(costs, order.placement))
    assert {Fraction(work, equal.ticks_per_unit) for work in timeline.work} == {Fraction(8 * 18, 3)}


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dualpipe"])
def test_ranks_of_equal_speed_share_what_the_slow_one_did(name):
    """A slow rank's extra time was gone with its speed, so that "all stages equal" promised more
    than balancing can give."""
    order = generate(name, 2, 4)
    uneven = Costs.uniform(order.placement, forward=[8, 16], backward_input=8, backward_weight=16)
    slow = {0: Fraction(3, 2), 1: Fraction(1, 4)}
    costs = replace(uneven, speed=slow, tail=Tail(optimizer=8))
    step, equal = simulate(order, costs), balanced(costs, order.placement)
    work = simulate(order, equal).work
    assert work[0] == work[1]
    assert equal.in_unit(sum(work)) == step.in_unit(sum(step.work))
    assert equal.in_unit(equal.tail.optimizer) == 7


@given(cases(orders()))
@settings(max_examples=60, deadline=None)
def test_a_little_faster_wins_no_more_than_the_share_of_the_critical_path(case):
    """The chain itself gets shorter by x × share; another chain can only take its place."""
    schedule, costs = case
    fine = replace(finer_ticks(costs, 1000), speed={})
    changed = faster(fine, 0, Fraction(1, 1000))
    gain = simulate(schedule, finer_ticks(fine, 1000)).finish - simulate(schedule, changed).finish
    if costs.stages[0].overlapped is None:
        path = critical_path(schedule, finer_ticks(fine, 1000))
        assert 0 <= gain <= path.stage_shares[0] * path.length / 1000
