"""unbubble sweep --run: every m for real on two processes."""

import json
from fractions import Fraction
from functools import partial

import pytest
from tests.sweeps import Runner, costs, swept

from unbubble import Costs, Duration, InputError, StageCosts
from unbubble.cli.swept import Swept
from unbubble.families import generate
from unbubble.partition import stage_costs
from unbubble.plan import Batch, Plan, dump_plan
from unbubble.runtime import doubling

TINY = "unbubble.runtime.decoder:tiny"
QUICK = "--run --steps 1 --warmup 0 --json"


def plan_of(tmp_path, layers=2, schedule="1f1b", model="", **settings):
    """F = 1 ms and B = 2 ms of each layer."""
    layer = StageCosts(forward=Duration(10**6), backward=Duration(2 * 10**6))
    rows = Costs(stages=(layer,) * layers, unit="s", ticks_per_unit=10**9)
    order = generate(schedule, 2, 4)
    split = (layers // order.num_stages,) * order.num_stages
    path = tmp_path / "plan.json"
    dump_plan(
        path,
        Plan(
            schedule=order,
            costs=stage_costs(rows, split),
            layers=rows,
            layers_per_stage=split,
            model=model,
            **settings,
        ),
    )
    return path


def test_two_v_of_a_real_decoder(unbubble, tmp_path):
    path = plan_of(tmp_path, 8, "interleaved-1f1b", TINY, batch=Batch(dp=2))
    result = unbubble(f"sweep --plan {path} -v 1,2,5 --most 4 --pays 0% {QUICK}")
    answer = result.json
    rows = answer["rows"]
    found = [(row["virtual_stages"], row["microbatches"]) for row in rows]
    assert found == [(1, 2), (1, 4), (2, 2), (2, 4)]
    assert [row["layers_per_stage"] for row in rows[1:3]] == [[4, 4], [2, 2, 2, 2]]
    # (m + p − 1) × 4 × 3 ms, and with v = 2 (m + (p − 1) / 2) × 4 × 3 ms
    assert [row["step"] for row in rows] == pytest.approx([0.036, 0.06, 0.03, 0.054])
    assert rows[1]["gain"] == pytest.approx(1.2)
    for row in rows:
        assert row["observed"] == pytest.approx(row["microbatches"] / row["observed_step"])
        assert row["error"] == pytest.approx(row["step"] / row["observed_step"] - 1)
        assert 0 < row["observed_bubble_fraction"] < 1
        assert sum(row["classes"].values()) == pytest.approx(1)
        assert sum(row["observed_classes"].values()) == pytest.approx(1)
    assert rows[1]["observed_gain"] == pytest.approx(rows[1]["observed"] / rows[0]["observed"])
    assert [row["virtual_stages"] for row in answer["skipped"]] == [5]
    assert answer["left_out"][0].startswith("batch.dp is 2")
    assert "unbubble: batch.dp is 2" in result.err
    assert answer["ended"] is None
    assert answer["unit"] == "s"
    assert "observed ×" in answer["verdict"]
    assert answer["best_virtual_stages"] in (1, 2)
    assert len(answer["verdicts"]) == 2


def test_its_table_fits_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    found = Swept(pays=Fraction(2, 100), measured=True)
    found.about("1f1b", 2)
    found.take(swept(Runner(lambda m: costs(1 + m / 20)), 16), (4, 4))
    found.print()
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith("1f1b, 2 ranks; predicted / measured, steps without the optimizer\n")
    assert "  222.2 / 215.1     - / -" in out
    assert "\n  not bubble-limited: a microbatch's compute, the kernels themselves," in out


@pytest.mark.parametrize(
    ("model", "status", "words"),
    [
        ("killed", 1, "rank 1 was lost: killed by SIGKILL"),
        ("interrupting", 130, "interrupted"),
    ],
)
def test_what_ends_a_sweep_leaves_the_rows_that_are_finished(
    unbubble, tmp_path, model, status, words
):
    path = plan_of(tmp_path)
    result = unbubble(f"sweep --plan {path} --model tiring:{model} --pays 0% {QUICK}")
    assert result.status == status
    assert result.err.splitlines()[-1] == f"unbubble: {words}"
    answer = json.loads(result.out)
    assert [row["microbatches"] for row in answer["rows"]][:2] == [2, 4]
    assert len(answer["rows"]) == 2
    assert answer["ended"] == words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "the plan names no model; give --model"),
        ("--model m:f --throughput 2:1,4:2", "--run measures by itself"),
        ("--model m:f -p 2", "--plan has ranks and costs of its own"),
        ("--model m:f --schedule chimera", "chimera keeps copies of every stage, which PyTorch"),
        ("--model m:f --memory 1GiB", "the costs know no bytes"),
        ("--model m:f --schedule interleaved -v 2,3", "no -v can be swept: 4 stages need at least"),
    ],
)
def test_what_cannot_be_run(refused, tmp_path, options, message):
    assert message in refused(f"sweep --plan {plan_of(tmp_path)} --run {options}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sweep -p 4 --run", "--run is of a plan: give --plan FILE"),
        ("sweep -p 4 --steps 3", "--steps is for steps that are run; it goes with --run"),
    ],
)
def test_what_goes_with_a_plan_alone(refused, line, message):
    assert message in refused(line)


def test_inside_torchrun(refused, tmp_path, monkeypatch):
    for key in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(key, "0")
    line = f"sweep --plan {plan_of(tmp_path)} --run --model m:f"
    assert "a sweep starts its own processes" in refused(line)


def test_rows_that_are_finished_are_kept_whatever_ends_the_sweep(unbubble, tmp_path, monkeypatch):
    """A microbatch of another shape at the third m took the rows of the first two with it."""
    runner = Runner()

    def run(setups, target, **options):
        if runner.launches:
            raise InputError("microbatch 9 has other shapes")
        return runner(setups, target, **options)

    monkeypatch.setattr(doubling, "Steps", partial(doubling.Steps, run=run))
    path = plan_of(tmp_path, model=TINY)
    result = unbubble(f"sweep --plan {path} --most 8 --pays 0% {QUICK}")
    assert result.status == 2
    assert [row["microbatches"] for row in json.loads(result.out)["rows"]] == [2, 4]
    assert json.loads(result.out)["ended"] == "microbatch 9 has other shapes"
