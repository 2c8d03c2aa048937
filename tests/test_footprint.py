"""The closed forms of memory, by hand and as asked about on public trackers."""

from fractions import Fraction

import pytest

from unbubble.errors import InputError
from unbubble.footprint import activation_bytes, state_bytes, uniform_recompute_bytes

GB = 10**9


def test_a_70b_model_on_sixteen_ranks():
    """Megatron-Bridge's guide counts 8.75 + 8.75 + 17.5 GB, Megatron-LM's rule 18 bytes a
    parameter, its distributed optimizer over four replicas 9."""
    share = 70 * GB // 16
    assert state_bytes(share, weights=2, gradients=2, optimizer=4) == (8.75 + 8.75 + 17.5) * GB
    assert state_bytes(share) == Fraction("78.75") * GB
    assert state_bytes(share, shards=4) == Fraction("39.375") * GB
    assert state_bytes(share, gradients=2, optimizer=8) == 12 * share


SIZES = {"samples": 2, "length": 1024, "hidden": 4096, "heads": 32}
SBH, CORE = 2 * 1024 * 4096, 5 * 32 * 1024**2 * 2


@pytest.mark.parametrize(
    ("options", "held"),
    [
        # DeepSpeed#1861: 34sbh + 5as²b
        ({}, 34 * SBH + CORE),
        ({"recompute": "selective"}, 34 * SBH),
        ({"recompute": "full"}, 2 * SBH),
        # llm-analysis#18: the norms are not sharded by tensor parallelism alone
        ({"tensor": 8}, 13 * SBH + CORE // 8),
        ({"tensor": 8, "recompute": "selective"}, 13 * SBH),
        ({"tensor": 8, "sequence_parallel": True}, (34 * SBH + CORE) // 8),
        ({"tensor": 8, "sequence_parallel": True, "recompute": "selective"}, 34 * SBH // 8),
        ({"tensor": 8, "recompute": "full"}, 2 * SBH),
    ],
)
def test_activations_of_a_layer(options, held):
    assert activation_bytes(**SIZES, **options) == held


def test_published_shares_of_the_attention_core():
    """The paper: 5as/h is 80 for GPT-3 (a = 96, s = 2048, h = 12288), so that selective recompute
    saves 70 %."""
    sizes = {"samples": 1, "length": 2048, "hidden": 12288, "heads": 96}
    whole = activation_bytes(**sizes)
    assert whole == 2048 * 12288 * (34 + 80)
    assert round(float(1 - activation_bytes(**sizes, recompute="selective") / whole), 2) == 0.70


def test_larger_groups_are_not_always_less():
    """Megatron-LM#1226: (L/g) · input + g · whole."""
    held = [uniform_recompute_bytes(24, g, 2, 34) for g in (1, 2, 3, 4, 6, 12, 24)]
    assert held == [82, 92, 118, 148, 212, 412, 818]
    light = [uniform_recompute_bytes(24, g, 2, 3) for g in (1, 2, 4, 6, 12, 24)]
    assert light == [51, 30, 24, 26, 40, 74]
    assert uniform_recompute_bytes(10, 4, 1, 0) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: state_bytes(0), "parameters is 0; it is at least 1"),
        (lambda: activation_bytes(**SIZES, recompute="some"), "one of none, selective, full"),
        (lambda: activation_bytes(**SIZES, tensor=0), "tensor is 0"),
        (lambda: uniform_recompute_bytes(24, 0, 1, 1), "group is 0"),
    ],
)
def test_what_has_no_answer_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
