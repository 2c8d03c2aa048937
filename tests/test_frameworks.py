"""Frameworks: their rules for the number of microbatches."""

import pytest

from unbubble.errors import InputError
from unbubble.families import families, generate
from unbubble.families.interleaved import broken_megatron_rule, least_group
from unbubble.frameworks import RULES, next_legal
from unbubble.schedule.pytorch_csv import format_csv


@pytest.mark.parametrize(
    ("framework", "p", "v", "given", "legal"),
    [
        ("any", 4, 1, 5, 5), ("any", 4, 2, 5, 8), ("megatron", 4, 2, 6, 8), ("pytorch", 4, 2, 6, 6),
        ("pytorch", 4, 2, 9, 10), ("pytorch", 8, 1, 3, 8), ("nanotron", 8, 1, 1, 7),
        ("deepspeed", 8, 1, 1, 1), ("maxtext", 4, 2, 6, 8), ("maxtext", 4, 1, 6, 8),
        ("automodel", 8, 1, 4, 8), ("automodel", 4, 2, 9, 10), ("colossalai", 4, 1, 3, 4),
        ("colossalai", 4, 1, 5, 5), ("colossalai", 4, 2, 5, 8), ("paddle", 4, 1, 1, 1),
        ("paddle", 4, 2, 5, 8), ("picotron", 8, 1, 1, 1), ("paddle", 4, 2, 9, 9),
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


def test_case_and_punctuation_of_a_framework_are_ignored():
    for name in ("Megatron-LM", "megatron_lm", "Megatron LM"):
        assert next_legal(6, 4, 2, name) == 8
    with pytest.raises(InputError, match="'torchtitn'; did you mean torchtitan"):
        next_legal(3, 4, 2, "torchtitn")


def test_a_framework_that_is_not_known_is_refused():
    with pytest.raises(InputError, match="no rule is known for 'jax'; known are any, megatron"):
        next_legal(3, 4, 2, "jax")


@pytest.mark.parametrize(
    ("framework", "v", "schedule"),
    [
        ("deepspeed", 2, ""), ("nanotron", 2, ""), ("gpt-neox", 1, "gpipe"), ("nemo", 1, "zb-h1"),
        ("maxtext", 1, "1f1b"), ("pytorch", 1, "dualpipe"),
    ],
)  # fmt: skip
def test_a_framework_without_the_schedule_is_refused(framework, v, schedule):
    """`bubble -v 2 --framework deepspeed` said: legal (it has no interleaved schedule)."""
    with pytest.raises(InputError, match=f"{framework} does not have .*; it has (1f1b|gpipe)"):
        next_legal(8, 4, v, framework, schedule=schedule)
    assert next_legal(1, 1, 1, framework, schedule="naive") == 1


def test_pytorch_has_what_its_csv_can_hold():
    """`bubble --schedule dualpipe --framework pytorch` said: legal; its export was refused."""
    for name, entry in families().items():
        if name == "naive":
            continue
        try:
            format_csv(entry.generate(2, 4))
            assert name in RULES["pytorch"].has
        except InputError:
            assert name not in RULES["pytorch"].has


@pytest.mark.parametrize(("framework", "least"), [("megatron", 2), ("verl", 2), ("paddle", 3)])
def test_too_few_ranks_to_interleave_are_refused(framework, least):
    with pytest.raises(InputError, match=f"interleaves the stages of {least} ranks at least"):
        next_legal(8, least - 1, 2, framework)
    assert next_legal(8, least - 1, 1, framework) == 8


@pytest.mark.parametrize("p", [2, 3, 5])
def test_megatrons_smallest_group_is_the_first_that_is_legal(p):
    for m in range(p, 40):
        legal = [g for g in range(1, m + 1) if not broken_megatron_rule(p, m, g)]
        assert least_group(p, m) == legal[0]
