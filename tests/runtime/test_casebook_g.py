"""Questions from public trackers about gradients (G), answered by real runs.

Each test names the thread in which the question was asked.
"""

import pytest

from unbubble import InputError, generate
from unbubble.runtime.run import Setup, run


def gradients_of(model, *schedules):
    setups = [Setup(generate(name, 2, 4), [1, 1]) for name in schedules]
    options = {"steps": 1, "warmup": 0, "timeout_s": 60}
    return [one.gradients for one in run(setups, f"bad_models:{model}", **options)]


def test_a_loss_that_is_a_sum_is_told_by_its_factor():
    """torchtitan#2972: gradients of a sum are larger by the number of microbatches."""
    for found in gradients_of("with_a_sum", "1f1b", "zb-h1"):
        assert found.summed
        assert found.largest_difference == pytest.approx(3 / 4)
        assert "the loss is a sum over the samples; divide it by their number" in found.blame


def test_a_mean_of_means_is_not_the_mean_over_tokens():
    """torchtitan#2206 and its family: microbatches of 1 and of 3 tokens weigh alike."""
    (found,) = gradients_of("of_tokens", "1f1b")
    assert (found.of_model, found.summed) == (True, False)
    assert "or one over other numbers of tokens in every microbatch" in found.blame


def test_a_weight_that_is_used_twice_is_counted_once():
    """pytorch#180952: the split backward counted it twice."""
    assert all(found.equal for found in gradients_of("of_weights_used_twice", "1f1b", "zb-h1"))


def test_a_stage_behind_frozen_ones_is_not_split():
    """PyTorch drops its weight gradients, and the schedule was said to train another model."""
    (found,) = gradients_of("frozen_first", "1f1b")
    assert found.equal
    with pytest.raises(InputError, match="splits the backward of stage 1, and no stage before it"):
        gradients_of("frozen_first", "zb-h1")


def test_a_model_of_which_nothing_is_trained_is_the_users_to_fix():
    """It ended with a RuntimeError of autograd's, as the failure of a rank."""
    with pytest.raises(InputError, match="no layer of the model has a parameter that is trained"):
        gradients_of("frozen", "1f1b")
