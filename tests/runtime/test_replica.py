"""What of a plan a run leaves out is told, and what would make the comparison wrong is refused.

All of it was ignored without a word: a plan of tp = 8 was run by one process a rank and its
prediction called wrong by a factor of eight.
"""

from dataclasses import replace

import pytest

from unbubble import Costs, Duration, StageCosts
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.plan import Batch, Plan
from unbubble.runtime.replica import left_out

MS = 10**6


def plan(schedule="1f1b", *, recompute_ms=0, **settings):
    order = generate(schedule, 2, 4)
    stage = StageCosts(
        forward=Duration(MS),
        backward_input=Duration(MS),
        backward_weight=Duration(MS),
        recompute=Duration(recompute_ms * MS),
    )
    costs = Costs(stages=(stage,) * order.num_stages, unit="s", ticks_per_unit=10**9)
    return Plan(schedule=order, costs=costs, **settings)


@pytest.mark.parametrize("target", ["", "pytorch", "PyTorch", "torch"])
def test_what_is_run_as_it_stands_needs_no_word(target):
    kept = {"parallel": {"tp": 1, "cp": 1}, "sharding": ("none",) * 2, "recompute": ("none",) * 2}
    assert left_out(plan(target=target, batch=Batch(samples=4), **kept)) == []
    assert left_out(plan(recompute_ms=1, recompute=("full", "full"))) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch": Batch(dp=4)}, ["batch.dp is 4: one replica is run"]),
        ({"sharding": ("zero1", "zero2"), "batch": Batch(dp=2)},
         ["batch.dp is 2", "sharding is zero1 on stage 0; zero2 on stage 1: one replica is run"]),
        ({"sharding": ("zero3", "zero3")}, ["sharding is zero3 on stages 0, 1"]),
        ({"target": "megatron"}, ["target is 'megatron': the plan is run by PyTorch's runtime"]),
    ],
)  # fmt: skip
def test_what_is_left_out_is_named_with_its_value(settings, words):
    found = left_out(plan(**settings))
    assert len(found) == len(words)
    for sentence, wanted in zip(found, words, strict=True):
        assert sentence.startswith(wanted)


def test_costs_that_are_no_seconds_are_told():
    made = plan()
    [sentence] = left_out(replace(made, costs=replace(made.costs, unit="")))
    assert sentence.startswith("costs are in no unit")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (plan(parallel={"tp": 2}), r"parallel.tp is 2: its stages are each shared by 2 devices"),
        (plan(parallel={"ep": 8}), r"parallel.ep is 8"),
        (plan(sharding=("none", "zero3"), batch=Batch(dp=2)), "zero3 on stage 1: .* 2 replicas"),
        (plan(recompute=("selective", "none")), "recompute is selective on stage 0"),
        (plan(recompute=("full", "full")), "full on stages 0, 1, and the costs have no time for"),
        (plan("zb-h1", recompute_ms=1, recompute=("none", "full")), "forward again for I and once"),
        # recompute in the costs alone was predicted, not run, and not told
        (plan(recompute_ms=1), "a `recompute` on stages 0, 1, and the plan's recompute is none"),
        (plan(recompute_ms=1, recompute=("full", "none")), "a `recompute` on stage 1, and the"),
    ],
)  # fmt: skip
def test_what_would_be_compared_with_something_else_is_refused(made, message):
    with pytest.raises(InputError, match=message):
        left_out(made)
