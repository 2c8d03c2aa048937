"""A run beside its prediction."""

from unbubble.costs import Costs
from unbubble.families import generate
from unbubble.runtime.measured import Measured
from unbubble.runtime.outcome import Outcome
from unbubble.simulate import simulate


def test_of_an_even_number_of_steps_the_typical_one_is_the_shorter_in_the_middle():
    """`run` drew the one of 159 ms and `trace` that of 149 ms of the same recording."""
    order = generate("1f1b", 2, 2)
    steps = [simulate(order, Costs.uniform(order.placement, forward=f)) for f in (9, 7, 3, 1)]
    ran = Measured(steps=tuple(steps), optimizer_s=(0.0,) * 4, losses=(), gradients=None)
    assert Outcome(predicted=steps[0], measured=ran).typical is steps[2]
