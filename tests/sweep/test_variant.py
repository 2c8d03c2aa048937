"""A plan with other m, other v, another family."""

from dataclasses import replace

import pytest

from unbubble import Costs, Duration, StageCosts
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.partition import stage_costs
from unbubble.plan import Plan, Prediction
from unbubble.schedule import Schedule
from unbubble.schedule.lowering import lower
from unbubble.sweep.variant import variant


def plan(name="1f1b", split=(3, 5), virtual=None, **settings):
    layer = StageCosts(forward=Duration(1), backward=Duration(2))
    layers = Costs(stages=(layer,) * 8, unit="s", ticks_per_unit=10**9)
    order = generate(name, 2, 4, virtual)
    return Plan(
        schedule=order,
        costs=stage_costs(layers, split),
        layers=layers,
        layers_per_stage=split,
        prediction=Prediction(makespan=1, span=1),
        **settings,
    )


def test_the_plans_own_family_keeps_its_split_and_costs():
    made = variant(plan(recompute=("none", "full"))).with_microbatches(16)
    assert made.schedule == generate("1f1b", 2, 16)
    assert made.layers_per_stage == (3, 5)
    assert made.costs == plan().costs
    assert made.recompute == ("none", "full")
    assert made.prediction is None  # it was that of another m


def test_a_lowered_order_is_still_its_family():
    assert variant(replace(plan(), schedule=lower(plan().schedule))).family.name == "1f1b"


def test_other_stages_are_partitioned_anew():
    found = variant(plan(sharding=("zero1", "zero1")), "interleaved-1f1b", 2)
    made = found.with_microbatches(4)
    assert made.layers_per_stage == (2, 2, 2, 2)
    assert made.costs == stage_costs(plan().layers, (2, 2, 2, 2))
    assert made.sharding == ("zero1",) * 4


def test_a_family_that_is_named_keeps_the_v_of_the_plan():
    """A v that the family did not list by itself once became the default, 2."""
    four = plan("looped-bfs", (1,) * 8, 4)
    assert variant(four, "interleaved-1f1b").schedule(4) == generate("interleaved-1f1b", 2, 4, 4)
    assert variant(plan(), "interleaved-1f1b").virtual == 2


def test_a_family_of_the_same_placement_keeps_the_split():
    assert variant(replace(plan(), layers=None), "gpipe").layers_per_stage == (3, 5)


@pytest.mark.parametrize(
    ("made", "name", "virtual", "message"),
    [
        (plan(), None, 2, r"1f1b has v \(stages a rank\) of 1, not 2"),
        (plan(), "interleaved-1f1b", 5, "10 stages need at least 10 layers and there are 8"),
        (replace(plan(), layers=None), "interleaved-1f1b", 2, "a plan with `layers` can be"),
        (replace(plan(), schedule=plan().schedule.named("mine")), None, None, "no known family"),
        (replace(plan(), schedule=plan("gpipe").schedule.named("1f1b")), None, None,
         "its order is another one"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused(made, name, virtual, message):
    with pytest.raises(InputError, match=message):
        variant(made, name, virtual)


def test_what_differs_by_stage_says_nothing_of_other_stages():
    found = variant(plan(recompute=("none", "full")), "interleaved-1f1b", 2)
    with pytest.raises(InputError, match="recompute differs from stage to stage"):
        found.with_microbatches(4)


def test_a_custom_order_can_be_swept_as_a_family_that_is_named():
    order = Schedule.of([["0F0", "0B0"], ["1F0", "1B0"]])
    assert variant(replace(plan(), schedule=order), "1f1b").schedule(8).microbatches == 8
