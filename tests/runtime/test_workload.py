"""What is no workload is refused in one sentence that names it."""

import pytest

from unbubble import InputError
from unbubble.runtime.workload import load


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("tied", "layers 0 and 1 share a parameter"),
        # it ended with a TypeError that it is not iterable
        ("one_module", "one_module: layers must be a non-empty sequence of torch modules"),
        ("no_batch", r"no_batch: a batch must be \(inputs, targets\)"),
        ("no_loss", r"no_loss: loss must be a function of \(output, target\)"),
        # pytorch#126600, Megatron-LM#1066: these failed in the middle of a stage, or ran on with
        # the targets of other samples
        ("growing", r"microbatch 1 has inputs and targets of \(3, 4\) and \(3, 4\), and microb"),
        ("left_over", r"microbatch 1 has inputs and targets of \(2, 4\) and \(1,\), and microb"),
    ],
)
def test_what_cannot_be_trained_is_the_users_to_fix(model, message):
    with pytest.raises(InputError, match=message):
        load(f"bad_models:{model}").batch(0, 2)


def test_a_loss_that_returns_nothing_is_the_users_to_fix():
    """TypeError: unsupported operand type(s) for /: 'NoneType' and 'int'."""
    with pytest.raises(InputError, match="loss returned NoneType; it must return a tensor of one"):
        load("bad_models:loss_of_none").loss(None, None)
