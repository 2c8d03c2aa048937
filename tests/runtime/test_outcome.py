"""A run beside its prediction."""

from dataclasses import replace

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


def test_what_is_predicted_in_no_seconds_is_not_printed_as_seconds():
    """A plan of `partition --layers` was said to take 30000.0 ms, +951166.0% off."""
    order = generate("1f1b", 2, 2)
    predicted = simulate(order, Costs.uniform(order.placement, forward=3))
    seconds = replace(predicted, unit="s", ticks_per_unit=1000)
    ran = Measured(steps=(seconds,), optimizer_s=(0.0,), losses=(), gradients=None)
    assert "predicted" not in "".join(Outcome(predicted=predicted, measured=ran).lines())
    text = "".join(Outcome(predicted=seconds, measured=ran).lines())
    assert "; predicted 15.0 ms, +0.0%" in text
    assert "       predicted" in text
