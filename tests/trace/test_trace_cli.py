"""unbubble trace: the JSON contract, files, limits and what is said where nothing can be told."""

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing import get_start_method

import pytest
from tests.shared import shared
from tests.trace.cuda_traces import write_cuda

from unbubble.cli import invoke
from unbubble.costs import Costs
from unbubble.costs_file import load_costs
from unbubble.families import generate
from unbubble.plan import Plan, dump_plan, load_plan
from unbubble.prediction import predict
from unbubble.simulate import simulate
from unbubble.sweep.variant import variant
from unbubble.trace import kineto
from unbubble.trace.recording import load_recording

US = 1000
GLOO = "traces/torch_gloo"
ROW = {
    "rank", "compute_s", "bubble_s", "imbalance_static_s", "imbalance_jitter_s", "communication_s",
    "overhead_s", "total_s", "recompute_s", "optimizer_s",
}  # fmt: skip


@pytest.fixture
def run(capsys):
    def call(*args, status=0):
        assert invoke(["trace", *map(str, args)]) == status
        return capsys.readouterr()

    return call


def answer_of(run, *args, status=0):
    return json.loads(run(*args, "--json", status=status).out)


@pytest.mark.parametrize(
    ("name", "family"),
    [("1F1B", "1f1b"), ("GPipe", "gpipe"), ("Interleaved1F1B", "interleaved-1f1b"),
     ("ZBVZeroBubble", "zb-v")],
)  # fmt: skip
def test_the_schedule_is_recognised_and_the_classes_add_up(run, name, family):
    answer = answer_of(run, shared(GLOO) / name)
    assert answer["schedule"] == family
    assert answer["unit"] == "s"
    for row in answer["ranks"]:
        assert row.keys() >= ROW
        parts = [row[key] for key in ROW if key.startswith(("bubble", "imb", "comm", "over"))]
        assert row["compute_s"] + sum(parts) == pytest.approx(row["total_s"], rel=1e-9)
    assert answer["predicted_s"] is None
    assert answer["unknown"] == []
    gains = [row["gain_s"] for row in answer["advice"]]
    assert gains == sorted(gains, reverse=True)
    assert answer["waits"][0]["length_s"] == max(w["length_s"] for w in answer["waits"])


def test_costs_and_plan_of_a_trace_close_the_loop(run, tmp_path):
    costs, plan, saved = tmp_path / "costs.json", tmp_path / "plan.json", tmp_path / "run.json"
    folder = shared(GLOO) / "GPipe"
    run(folder, "--write-costs", costs, "--write-plan", plan, "--save", saved)
    made = load_plan(plan)
    assert made.costs == load_costs(costs)
    # it was "custom", so that no sweep knew how to make it for another m
    assert made.schedule.name == "gpipe"
    assert variant(made).family.name == "gpipe"
    answer = answer_of(run, folder, "--plan", plan)
    predicted = predict(made.schedule, made.costs)
    assert answer["predicted_s"] == pytest.approx(
        predicted.in_unit(predicted.finish - predicted.begin)
    )
    assert answer["against_plan"]["order_differences"] == []
    again = answer_of(run, saved)
    assert again["format"] == "recording"
    assert again["fractions"] == answer["fractions"]
    (timeline,) = load_recording(saved).steps
    assert timeline.measured


@pytest.mark.parametrize("source", ["measured/primus_mi300x/pp8", "traces/megatronapp", "cuda"])
def test_a_saved_step_keeps_what_its_traces_left_open(source, run, tmp_path):
    """As a recording it was on clocks that agree to 0 s, and of transfers that no file of its kind
    has nothing was said."""
    folder = tmp_path / "traces"
    folder.mkdir()
    order = generate("1f1b", 2, 4)
    timeline = simulate(order, Costs.uniform(order.placement, forward=US, backward=2 * US))
    traces = shared(source) if source != "cuda" else write_cuda(folder, timeline, offsets={1: 5})
    before = answer_of(run, traces, "--save", tmp_path / "saved.json")
    after = answer_of(run, tmp_path / "saved.json")
    for key in ("unknown", "recovered", "clock_uncertainty_s", "class_uncertainty_s", "fractions"):
        assert after[key] == before[key], key


def test_a_plan_of_another_order_is_told_apart(run, tmp_path):
    plan = tmp_path / "plan.json"
    run(shared(GLOO) / "GPipe", "--write-plan", plan)
    answer = answer_of(run, shared(GLOO) / "1F1B", "--plan", plan)
    first = answer["against_plan"]["order_differences"][0]
    assert (first["rank"], first["planned"], first["ran"]) == (0, "0F2", "0B0")


@pytest.fixture
def again(tmp_path):
    """Traces of two ranks whose backwards of 200 µs run 60 µs of forwards again."""
    order = generate("1f1b", 2, 4)
    timeline = simulate(order, Costs.uniform(order.placement, forward=100 * US, backward=200 * US))
    folder = tmp_path / "again"
    folder.mkdir()
    return write_cuda(folder, timeline, again=60 * US)


def test_recompute_stands_beside_the_compute_that_it_is_a_part_of(run, again, tmp_path):
    costs, page = tmp_path / "costs.json", tmp_path / "t.html"
    answer = answer_of(run, again, "--write-costs", costs, "--html", page)
    for row in answer["ranks"]:
        assert row["recompute_s"] == pytest.approx(4 * 60e-6)
        assert row["compute_s"] == pytest.approx(4 * 300e-6)
        parts = [row[key] for key in ROW if key.startswith(("bubble", "imb", "comm", "over"))]
        assert row["compute_s"] + sum(parts) == pytest.approx(row["total_s"], rel=1e-9)
    assert [row["B"]["recompute_s"] for row in answer["stages"]] == [60e-6] * 2
    (stage, _) = load_costs(costs).stages
    assert (stage.backward.total, stage.recompute.total) == (140 * US, 60 * US)
    (gain,) = [row["gain_s"] for row in answer["advice"] if row["what"].startswith("no recompute")]
    assert gain == pytest.approx((4 + 1) * 60e-6)  # of every backward on the critical path
    text = run(again).out
    assert "recompute" in text.splitlines()[2]
    assert max(map(len, text.splitlines()[:6])) <= 80
    assert "<td>240 µs</td>" in page.read_text()


def test_recompute_that_is_not_told_is_no_zero(run, again, tmp_path):
    for path in again.glob("*.json"):
        path.write_text(path.read_text().replace('"cpu_op"', '"python_function"'))
    page = tmp_path / "t.html"
    answer = answer_of(run, again, "--html", page)
    assert "<td>–</td>" in page.read_text()
    assert [row["recompute_s"] for row in answer["ranks"]] == [None, None]
    assert [row["B"]["recompute_s"] for row in answer["stages"]] == [None, None]
    assert any(text.startswith("recompute:") for text in answer["unknown"])


def test_what_one_rank_does_not_tell_of_recompute_is_said_once(run, again):
    """Beside the rank's own reason stood that "the trace does not say what backwards run again"."""
    path = again / "rank0.json"
    path.write_text(path.read_text().replace('"cpu_op"', '"python_function"'))
    (reason,) = (text for text in answer_of(run, again)["unknown"] if "recompute" in text)
    assert reason.startswith("rank 0: recompute: ")


def test_one_rank_s_trace_alone_tells_its_recompute(run, again):
    (row,) = answer_of(run, again / "rank1.json")["ranks"]
    assert row["bubble_s"] is None
    assert row["recompute_s"] == pytest.approx(4 * 60e-6)


def test_limits(run):
    folder = shared(GLOO) / "1F1B"
    assert answer_of(run, folder, "--max-bubble", "90%")["exceeded"] == []
    answer = answer_of(run, folder, "--max-overhead", "5%", "--min-compute", "0.9", status=3)
    assert [row["limit"] for row in answer["exceeded"]] == ["max_overhead", "min_compute"]
    message = run(shared("traces/hta/sampled_rank-0.json.gz"), "--max-bubble", "5%", status=2).err
    assert "cannot tell" in message


NO_PIPELINE = [
    "traces/hta/sampled_rank-0.json.gz",
    "traces/hta/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "traces/hta/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    "traces/tracelens",
]


@pytest.mark.parametrize("name", NO_PIPELINE)
def test_no_pipeline_is_invented(run, name):
    answer = answer_of(run, shared(name))
    assert answer["verdict"] == "cannot tell"
    assert answer["gains"] is None
    for row in answer["ranks"]:
        assert row["bubble_s"] is None
        parts = row["compute_s"] + row["communication_s"] + row["idle_s"]
        assert parts == pytest.approx(row["total_s"])
    assert any("pipeline" in text for text in answer["unknown"])


def test_all_to_all_is_no_pipeline_traffic(run):
    text = run(
        shared("traces/hta/sampled_rank-0.json.gz"), shared("traces/hta/sampled_rank-1.json.gz")
    )
    assert "transfers" not in text.out  # its SendRecv kernels are all-to-all's


def test_pictures(run, tmp_path):
    folder = shared(GLOO) / "ZBVZeroBubble"
    run(folder, "--svg", tmp_path / "t.svg", "--chrome", tmp_path / "t.json",
        "--html", tmp_path / "t.html")  # fmt: skip
    assert (tmp_path / "t.svg").read_text().startswith("<svg")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert "<html" in (tmp_path / "t.html").read_text()


def test_steps_can_be_chosen(run):
    folder = shared(GLOO) / "GPipe"
    assert answer_of(run, folder, "--step", 1)["step"] == 1
    assert "steps 1, 2" in run(folder, "--step", 7, status=2).err


def test_what_if_over_all_steps(run):
    answer = answer_of(run, shared("traces/bytedance_straggler/trace-ST.parquet"), "--what-if")
    assert answer["what_if"]["by_stage"]["3"] == pytest.approx(1.2323, abs=1e-3)
    assert answer["slowest_stage"] == 3
    assert len(answer["pipelines"]) == 2


@pytest.mark.skipif(get_start_method() != "fork", reason="the readers are replaced before a fork")
def test_a_reading_process_that_is_killed_ends_the_command(monkeypatch, capsys, tmp_path):
    """The others took the signal that was to end them for an interrupt of their file, went on to
    wait for the next one, and the command waited for them for ever."""
    order = generate("1f1b", 2, 2)
    write_cuda(tmp_path, simulate(order, Costs.uniform(order.placement, forward=US, backward=US)))

    def killed(source):
        if "rank0" in source:
            time.sleep(0.5)  # until the other is at work
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    monkeypatch.setattr(kineto, "read", killed)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as the command's main does
    try:
        status = invoke(["trace", str(tmp_path), "--jobs", "2"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert status == 1
    assert capsys.readouterr().err == (
        "unbubble: a process that read the traces was killed; if memory ran out, give fewer "
        "--jobs\n"
    )


HOOKED = """
import os, signal, sys
from unbubble.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
os.register_at_fork(after_in_parent=lambda: [os.kill(os.getpid(), signal.SIGINT), len("passed")])
main(sys.argv[1:])
"""


@pytest.mark.skipif(get_start_method() != "fork", reason="other starts of a process call no hooks")
def test_an_interrupt_while_the_reading_processes_start(tmp_path):
    """Python's own calls around a fork printed it and forgot it; the command went on."""
    order = generate("1f1b", 2, 2)
    write_cuda(tmp_path, simulate(order, Costs.uniform(order.placement, forward=US, backward=US)))
    done = subprocess.run(
        [sys.executable, "-c", HOOKED, "trace", str(tmp_path), "--jobs", "2"],
        capture_output=True, text=True, timeout=100, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "unbubble: interrupted"


def test_what_differs_from_the_plan_is_said(run, again, tmp_path):
    """Only the step's error was, which is next to 0 where GPipe ran for 1F1B."""
    plan, slow = tmp_path / "plan.json", tmp_path / "slow"
    run(again, "--write-plan", plan)
    same = run(again, "--plan", plan).out
    assert "predicted" in same
    assert "planned" not in same
    order = generate("gpipe", 2, 4)
    costs = Costs.uniform(order.placement, forward=[100 * US, 150 * US], backward=200 * US)
    slow.mkdir()
    text = run(write_cuda(slow, simulate(order, costs), again=60 * US), "--plan", plan).out
    assert "another order than planned: rank 0 ran 0F2 where the plan has 0B0; 1 more rank" in text
    assert "median / planned time: stage 1 F 1.5\n" in text
    run(again, "--write-plan", plan)
    other = generate("interleaved-1f1b", 2, 4, 2)
    dump_plan(plan, Plan(schedule=other, costs=Costs.uniform(other.placement, unit="s")))
    assert "the plan has 4 stages and the traces have 2" in run(again, "--plan", plan).out


def test_a_recording_of_other_ranks_than_the_plan_s_is_not_compared(run, again, tmp_path):
    """Rank None ran 2 ranks where the plan has 4, and the step was predicted."""
    plan, saved = tmp_path / "plan.json", tmp_path / "saved.json"
    order = generate("1f1b", 4, 4)
    dump_plan(plan, Plan(schedule=order, costs=Costs.uniform(order.placement, unit="s")))
    run(again, "--save", saved)
    answer = answer_of(run, saved, "--plan", plan)
    assert answer["predicted_s"] is None
    reason = "plan: it is of 4 ranks with 4 stages and the step of 2 ranks with 2 stages"
    assert any(text.startswith(reason) for text in answer["unknown"])


def test_classes_that_the_clocks_touch_are_said_beside_them(run):
    text = " ".join(run(shared("measured/primus_mi300x/pp8")).out.split())
    assert "clocks agree to 4.74 ms, so exposed and overhead to 0.3% of the step" in text
    assert "clocks agree to 0 s\n" in run(shared(GLOO) / "GPipe").out
