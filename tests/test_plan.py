"""The plan file: written and read back equal, and refused in one sentence where it is wrong."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unbubble.costs import Costs, Duration, StageCosts
from unbubble.errors import InputError
from unbubble.families import families, generate
from unbubble.partition import even, stage_costs
from unbubble.plan import (
    RECOMPUTE,
    SHARDING,
    Batch,
    Phase,
    Plan,
    Prediction,
    dump_plan,
    format_plan,
    load_plan,
    parse_plan,
)
from unbubble.simulate import simulate


def layers(count):
    rows = (
        StageCosts(name=f"l{i}", forward=Duration(i + 1), backward=Duration(3))
        for i in range(count)
    )
    return Costs(stages=tuple(rows), unit="s", ticks_per_unit=10**9)


def example():
    schedule = generate("1f1b", 2, 3)
    costs = stage_costs(layers(5), [3, 2])
    timeline = simulate(schedule, costs)
    return Plan(
        name="chosen",
        model="decoder:tiny",
        schedule=schedule,
        layers=layers(5),
        layers_per_stage=(3, 2),
        costs=costs,
        batch=Batch(samples=4, dp=2, phases=(Phase("ramp-up", 2), Phase("evaluation", 4, 8))),
        parallel={"tp": 2},
        recompute=("none", "full"),
        sharding=("zero1", "zero1"),
        target="pytorch",
        prediction=Prediction(makespan=timeline.makespan, span=timeline.span),
    )


def test_a_file_reads_back_equal(tmp_path):
    dump_plan(tmp_path / "plan.json", example())
    plan = load_plan(tmp_path / "plan.json")
    assert plan == example()
    assert plan.schedule.name == "1f1b"
    assert (plan.microbatches, plan.global_batch) == (3, 24)


def test_costs_that_are_left_out_are_those_of_the_layers():
    document = json.loads(format_plan(example()))
    del document["costs"]
    assert parse_plan(json.dumps(document)) == example()


@given(
    st.sampled_from(sorted(families())),
    st.integers(1, 4),
    st.integers(1, 8),
    st.data(),
)
@settings(max_examples=60)
def test_what_is_written_reads_back_equal(name, p, m, data):
    try:
        schedule = generate(name, p, m)
    except InputError:
        return
    n = schedule.num_stages
    rows = layers(data.draw(st.integers(n, n + 3)))
    split = even(rows.num_stages, n)
    parts = st.lists(st.sampled_from(RECOMPUTE), min_size=n, max_size=n).map(tuple)
    shards = st.lists(st.sampled_from(SHARDING), min_size=n, max_size=n).map(tuple)
    counts = st.integers(1, 10**6)
    phases = st.lists(st.builds(Phase, st.text(max_size=3), counts, counts), max_size=2)
    plan = Plan(
        schedule=schedule,
        costs=stage_costs(rows, split),
        name=data.draw(st.text(max_size=4)),
        model=data.draw(st.text(max_size=4)),
        target=data.draw(st.text(max_size=4)),
        layers=data.draw(st.none() | st.just(rows)),
        layers_per_stage=split,
        batch=Batch(samples=data.draw(counts), phases=tuple(data.draw(phases))),
        recompute=data.draw(st.just(()) | parts),
        sharding=data.draw(st.just(()) | shards),
        parallel=data.draw(st.dictionaries(st.sampled_from(["tp", "cp"]), counts)),
        prediction=data.draw(st.none() | st.builds(Prediction, makespan=counts, span=counts)),
    )
    again = parse_plan(format_plan(plan))
    assert again == plan
    assert again.schedule.name == schedule.name


def broken(**changes):
    document = json.loads(format_plan(example()))
    for path, value in changes.items():
        *parents, key = path.split("__")
        place = document
        for parent in parents:
            place = place[parent]
        if value is None:
            del place[key]
        else:
            place[key] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "plan: the file is empty; a plan file was expected there"),
        ("{}", "plan: the key 'unbubble_plan' is missing"),
        ("[1, 2]", "plan: not TOML"),
        (broken(unbubble_plan=2), "plan: the plan has version 2 and this unbubble reads 1"),
        (broken(schedul=2), "unknown key 'schedul'; did you mean schedule"),
        (broken(layers_per_stage=[3, 1]), "layers_per_stage holds 4 layers and there are 5"),
        (broken(layers_per_stage=[3, 1, 1]), "layers_per_stage has 3 stages and the schedule 2"),
        (broken(layers_per_stage=[5, 0]), r"layers_per_stage\[1\]: 0 must be at least 1"),
        (broken(recompute=["some", "full"]), r"recompute\[0\]: 'some' is not known; known are"),
        (broken(sharding=["none"]), "sharding has 1 stages and the schedule 2"),
        (broken(costs=None, layers=None), "a plan has costs, or layers and layers_per_stage"),
        (broken(costs__stages=[{"forward": 1, "backward": -2}]), r"costs.stages\[0\].backward: -2"),
        (broken(costs__stages=[{"forward": 1, "backward": 2}]), "costs has 1 stages and the sch"),
        (broken(schedule__rows=["0F0", "1F0x"]), r"schedule.rows\[1\]: action 0: '1F0x' is not an"),
        (broken(schedule__rows=["0F0,1F0", "1B0"]), "action 1: stage 1 of 1F0 is not on rank 0"),
        (broken(schedule__rows=["0F0", "7F0"]), "action 0: stage 7 of 7F0 is not on rank 1"),
        (broken(schedule__rows=["0F0", ""]), r"rows\[1\]: the rank has no action"),
        (broken(schedule__rows=["0F0"]), "plan: schedule: the schedule has 1 rows but"),
        (broken(schedule__rows=["0F0", "1F2000000000"]), "the microbatch of 1F2000000000 is out"),
        (broken(schedule__rank_of=[0, 10**8]), "rank 100000000 is too high for 2 stages"),
        (broken(schedule__rank_of=[0, -1]), r"rank_of\[1\]: -1 must be at least 0"),
        (broken(schedule__rank_of=[]), "schedule: 0 placed stages do not make 1 equal copies"),
        (broken(schedule__copies=3), "schedule: 2 placed stages do not make 3 equal copies"),
        (broken(batch__samples=0), "batch.samples: 0 must be at least 1"),
        (broken(batch__phases=[{"name": "x"}]), r"phases\[0\]: the key 'microbatches' is missing"),
        (broken(parallel={"pp": 2}), "parallel: unknown key 'pp'"),
        (broken(prediction={"makespan": 1}), "prediction: the key 'span' is missing"),
        (broken(target=3), "target: 3 is not a text"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_plan(text)
    assert str(caught.value).startswith("plan: ")


def test_a_plan_that_does_not_fit_together_cannot_be_made():
    with pytest.raises(InputError, match="costs has 5 stages and the schedule 2"):
        replace(example(), costs=layers(5))
