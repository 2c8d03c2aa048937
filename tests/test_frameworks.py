"""Frameworks: their rules for the number of microbatches."""

import pytest

from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.frameworks import next_legal


@pytest.mark.parametrize(
    ("framework", "p", "v", "given", "legal"),
    [
        ("any", 4, 1, 5, 5), ("any", 4, 2, 5, 8), ("megatron", 4, 2, 6, 8), ("pytorch", 4, 2, 6, 6),
        ("pytorch", 4, 2, 9, 10), ("pytorch", 8, 1, 3, 8), ("nanotron", 8, 1, 1, 7),
        ("deepspeed", 8, 1, 1, 1), ("maxtext", 4, 2, 6, 8),
    ],
)  # fmt: skip
def test_the_next_legal_number_of_microbatches(framework, p, v, given, legal):
    assert next_legal(given, p, v, framework) == legal


@pytest.mark.parametrize("p", [1, 2, 4, 7])
def test_pytorchs_rule_is_that_of_the_generated_schedules(p):
    made = []
    for m in range(1, 80):
        try:
            generate("interleaved-1f1b", p, m, 2)
        except InputError:
            continue
        made.append(m)
    for m in range(1, max(made) + 1):
        assert next_legal(m, p, 2, "pytorch") == next(legal for legal in made if legal >= m)


def test_a_framework_that_is_not_known_is_refused():
    with pytest.raises(InputError, match="no rule is known for 'jax'; known are any, megatron"):
        next_legal(3, 4, 2, "jax")


@pytest.mark.parametrize(
    ("framework", "v", "schedule"),
    [("deepspeed", 2, ""), ("nanotron", 2, ""), ("gpt-neox", 1, "gpipe"), ("nemo", 1, "zb-h1")],
)
def test_a_framework_without_the_schedule_is_refused(framework, v, schedule):
    """`bubble -v 2 --framework deepspeed` said: legal (it has no interleaved schedule)."""
    with pytest.raises(InputError, match=f"{framework} does not have .*; it has 1f1b"):
        next_legal(8, 4, v, framework, schedule=schedule)
    assert next_legal(1, 1, 1, framework, schedule="naive") == 1
