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
    outcome = Outcome(predicted=steps[0], measured=ran)
    assert outcome.typical is steps[2]
    shown = (
        f"those of step 2, {1e3 * steps[2].makespan:.1f} ms, of the two in the middle the shorter"
    )
    assert shown in " ".join(" ".join(outcome.lines()).split())


def test_the_median_of_an_odd_number_of_steps_is_said_once():
    order = generate("1f1b", 2, 2)
    steps = [simulate(order, Costs.uniform(order.placement, forward=f)) for f in (9, 3, 1)]
    ran = Measured(steps=tuple(steps), optimizer_s=(0.0,) * 3, losses=(), gradients=None)
    assert "in the middle" not in " ".join(Outcome(predicted=steps[0], measured=ran).lines())
