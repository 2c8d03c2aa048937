"""Costs: from plain times, exact, or refused by name."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy
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


def test_other_numbers_than_pythons_own():
    """A whole number of NumPy's, or a Decimal, was "not iterable"; a float of NumPy's was taken."""
    placement = generate("1f1b", 2, 1).placement
    for three in (numpy.int64(3), numpy.float64(3), Decimal(3), numpy.array([3, 3])):
        assert Costs.uniform(placement, forward=three) == Costs.uniform(placement, forward=3)


def test_costs_that_cannot_be_are_refused_when_they_are_made():
    """An unknown channel ended in "x not in tuple", a factor of 0 made a rank take no time."""
    costs = Costs.uniform(generate("1f1b", 2, 1).placement)
    with pytest.raises(InputError, match="channel is 'bus'; it is one of unlimited, link"):
        replace(costs, channel="bus")
    with pytest.raises(InputError, match="speed factor of rank 1 is 0; it is above 0"):
        replace(costs, speed={1: Fraction(0)})
    for name in ("zb-1p", "zb-v"):
        with pytest.raises(InputError, match=f"costs have 2 stages and {name} [48]; they must"):
            generate(name, 4, 8, costs=costs)
