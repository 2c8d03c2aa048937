"""unbubble run: a plan for real on two processes."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.sweeps import Runner

from unbubble import Costs, Duration, StageCosts
from unbubble.action import Kind
from unbubble.families import generate
from unbubble.plan import Batch, Plan, dump_plan, load_plan
from unbubble.runtime import run as module
from unbubble.trace.recording import load_recording

CLASSES = ("compute", "bubble", "imbalance_static", "imbalance_jitter", "communication", "overhead")


@pytest.fixture
def plan(tmp_path):
    schedule = generate("1f1b", 2, 4)
    stage = StageCosts(forward=Duration(10**6), backward=Duration(2 * 10**6))
    costs = Costs(stages=(stage, stage), unit="s", ticks_per_unit=10**9)
    path = tmp_path / "plan.json"
    dump_plan(
        path,
        Plan(
            schedule=schedule,
            costs=costs,
            layers_per_stage=(4, 4),
            model="unbubble.runtime.decoder:tiny",
        ),
    )
    return path


def test_the_keys_of_the_contract_and_the_files(unbubble, plan, tmp_path):
    recording, trace = tmp_path / "run.json", tmp_path / "trace.json"
    answer = unbubble(f"run {plan} --steps 3 --json --recording {recording} --chrome {trace}").json
    assert len(answer["step_times_s"]) == 3
    assert answer["step_s"] == sorted(answer["step_times_s"])[1]
    assert answer["predicted_s"] == pytest.approx(0.015)  # (m + p − 1) × 3 ms
    assert answer["error"] == pytest.approx(answer["predicted_s"] / answer["step_s"] - 1)
    assert answer["unit"] == "s"
    assert answer["gradients"]["equal"]
    assert answer["gradients"]["largest_difference"] <= answer["gradients"]["tolerance"] == 1e-5
    for row in answer["attribution"]["ranks"]:
        assert sum(row[f"{name}_s"] for name in CLASSES) == pytest.approx(row["total_s"])
        assert row["compute_s"] > 0
    assert answer["attribution"]["gains"].keys() == answer["predicted_attribution"]["gains"].keys()
    steps = load_recording(recording).steps
    assert [step.in_unit(step.makespan) for step in steps] == answer["step_times_s"]
    assert json.loads(trace.read_bytes())["traceEvents"]


def test_inside_torchrun(plan):
    """One run in five ended with SIGABRT after its answer: a thread of gloo at the very end."""
    program = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m"]
    done = subprocess.run(
        [*program, "unbubble", "run", str(plan), "--steps", "1", "--no-verify", "--json"],
        capture_output=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["gradients"] is None
    assert answer["ranks"] == 2


def test_what_is_left_out_is_told_and_recompute_is_done(unbubble, plan):
    """Sizes, sharding, recompute and target of a plan were ignored without a word."""
    change = {"recompute": ("full", "none"), "batch": Batch(dp=2), "target": "torchtitan"}
    made = load_plan(plan)
    first, second = made.costs.stages
    sleeping = f"unbubble.runtime.emulated:sleeping({[[0.004, 0.004, 0.004]] * 2})"
    stages = (replace(first, recompute=Duration(4 * 10**6)), second)
    costs = replace(made.costs, stages=stages)
    change |= {"model": sleeping, "layers_per_stage": (1, 1), "costs": costs}
    dump_plan(plan, replace(made, **change))
    recording = plan.with_name("steps.json")
    result = unbubble(f"run {plan} --steps 3 --json --recording {recording}")
    assert result.json["gradients"]["equal"]
    assert len(result.json["left_out"]) == 2
    assert "unbubble: batch.dp is 2: one replica is run" in result.err
    assert "unbubble: target is 'torchtitan'" in result.err
    backwards = [
        min(step.in_unit(e.end - e.start) for step in load_recording(recording).steps
            for e in step.events(rank) if e.action.kind is Kind.B)
        for rank in (0, 1)
    ]  # fmt: skip
    # 8 ms, and 4 more for the second forward of the stage that recomputes
    assert backwards[0] > 0.0115 > backwards[1] > 0.0075


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parallel": {"tp": 2}}, "parallel.tp is 2"),
        ({"model": ""}, "the plan names no model; give --model"),
        ({"model": "nothing"}, "'nothing' does not name a model"),
        ({"layers_per_stage": ()}, "how many layers each stage has"),
    ],
)
def test_a_plan_that_cannot_be_run(unbubble, plan, change, message):
    dump_plan(plan, replace(load_plan(plan), **change))
    result = unbubble(f"run {plan}")
    assert (result.status, result.out) == (2, "")
    assert message in result.err


def test_a_missing_plan(unbubble, tmp_path):
    result = unbubble(f"run {tmp_path}/none.json")
    assert result.status == 2
    assert "No such file" in result.err


def test_a_disk_that_is_full_takes_no_figures_with_it(unbubble, plan, monkeypatch):
    """The run had been made, and of its steps nothing was told. The file had no name."""
    monkeypatch.setattr(module, "run", Runner())
    result = unbubble(f"run {plan} --json --recording /dev/full")
    assert result.status == 1
    assert result.err.splitlines()[-1] == "unbubble: /dev/full: No space left on device"
    assert len(json.loads(result.out)["step_times_s"]) == 8
