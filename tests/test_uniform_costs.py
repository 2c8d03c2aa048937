"""Costs: from plain times, exact, or refused by name."""

from fractions import Fraction

import pytest

from unbubble import Costs, InputError, generate, simulate


def test_a_float_means_its_shortest_text():
    """0.1 was "not iterable" as a time and had "no common unit" as a transfer: it is a fraction of
    2^55 to Python."""
    order = generate("1f1b", 2, 1)
    costs = Costs.uniform(order.placement, forward=0.1, backward=[0.2, Fraction(1, 3)], p2p=0.05)
    step = simulate(order, costs)
    assert Fraction(step.makespan, costs.ticks_per_unit) == Fraction(3, 10) + Fraction(8, 15)
    for time, why in ((-1, "forward: -1 is negative"), ("1ms", "forward: '1ms' has the unit 'ms'")):
        with pytest.raises(InputError, match=why):
            Costs.uniform(order.placement, forward=time)
