"""unbubble simulate and compare."""

from itertools import pairwise

import pytest

from unbubble.costs import Costs
from unbubble.families import generate
from unbubble.plan import Prediction, load_plan
from unbubble.prediction import predict
from unbubble.schedule import format_csv
from unbubble.simulate import simulate
from unbubble.trace.recording import dump_recording


def test_the_keys_of_the_contract(unbubble):
    answer = unbubble("simulate --schedule 1F1B -p 4 -m 8 --backward 2 --json").json
    assert answer == {
        "schedule": "1f1b",
        "ranks": 4,
        "microbatches": 8,
        "virtual_stages": 1,
        "num_stages": 4,
        "makespan": 33,
        "span": 33,
        "step": 33,
        "work": [24] * 4,
        "idle": [9] * 4,
        "bubble_fraction": pytest.approx(3 / 11),
        "bubble_fraction_span": pytest.approx(3 / 11),
        "bubble_overhead": 3 / 8,
        "utilization": pytest.approx(8 / 11),
        "imbalance_factor": 1,
        "utilization_first_order": pytest.approx(8 / 11),
        "peak_activations": [4, 3, 2, 1],
        "weight_bytes": None,
        "peak_bytes": None,
        "notes": [],
        "critical_path": answer["critical_path"],
        "critical_path_of": "step",
        "stage_sensitivity": answer["stage_sensitivity"],
        "layers_per_stage": None,
        "unit": "",
    }


@pytest.mark.parametrize("line", [
    "1f1b -p 4 -m 6", "1f1b -p 4 -m 6 --forward 9,12,7,13", "dualpipe -p 4 -m 8 --overlapped 2",
    "interleaved-1f1b -p 2 -m 4 -v 3 --p2p 1", "interleaved-zb -p 4 -m 8 -v 2 --backward-weight 3",
])  # fmt: skip
def test_the_critical_path_adds_up_to_the_makespan(unbubble, line):
    answer = unbubble(f"simulate --schedule {line} --json").json
    name, *rest = line.split()
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    order = generate(
        name,
        int(options["-p"]),
        int(options["-m"]),
        int(options.get("-v", 1)) if "-v" in options else None,
    )
    times = {}
    for key in ("forward", "backward-weight", "overlapped", "p2p"):
        if f"--{key}" in options:
            values = [int(x) for x in options[f"--{key}"].split(",")]
            times[key.replace("-", "_")] = values if len(values) > 1 else values[0]
    timeline = simulate(order, Costs.uniform(order.placement, **times))
    took = {
        str(event.action): (event.end - event.start, rank)
        for rank in range(order.ranks)
        for event in timeline.events(rank)
    }
    path = [took[action] for action in answer["critical_path"]]
    hops = sum(a != b for (_, a), (_, b) in pairwise(path))
    transfers = hops * times.get("p2p", 0)
    total = timeline.in_unit(sum(time for time, _ in path)) + transfers
    assert total == pytest.approx(answer["makespan"], rel=1e-12)


def test_one_time_is_a_whole_ranks(unbubble):
    whole = unbubble("simulate --schedule interleaved-1f1b -p 4 -m 8 -v 2 --json").json
    stages = ",".join(["0.5"] * 8)
    line = f"--forward {stages} --backward-input {stages} --backward-weight {stages}"
    by_stage = unbubble(f"simulate --schedule interleaved-1f1b -p 4 -m 8 -v 2 {line} --json").json
    assert whole == by_stage
    assert whole["work"] == [24] * 4


def test_times_with_a_unit_give_seconds(unbubble):
    line = "simulate --schedule gpipe -p 2 -m 2 --forward 1.5ms --backward 3000us --p2p 0 --json"
    answer = unbubble(line).json
    assert answer["unit"] == "s"
    assert answer["makespan"] == pytest.approx(0.0135)


def test_a_csv_file(unbubble, tmp_path):
    (tmp_path / "own.csv").write_text(format_csv(generate("1f1b", 2, 3)))
    answer = unbubble("simulate --json --csv", tmp_path / "own.csv").json
    assert (answer["schedule"], answer["ranks"], answer["microbatches"]) == ("own", 2, 3)
    assert (
        answer["makespan"] == unbubble("simulate --schedule 1f1b -p 2 -m 3 --json").json["makespan"]
    )


COSTS = '{"unit": "ms", "%s": [%s]}'
ROW = '{"forward": 1, "backward": 2}'


def costs_file(tmp_path, rows, kind="stages"):
    path = tmp_path / "costs.json"
    path.write_text(COSTS % (kind, ",".join([ROW] * rows)))
    return path


def test_a_costs_file_of_stages_and_of_layers(unbubble, tmp_path):
    stages = unbubble("simulate --schedule 1f1b -p 4 -m 8 --json --costs", costs_file(tmp_path, 4))
    assert stages.json["makespan"] == pytest.approx(0.033)
    path = costs_file(tmp_path, 5, "layers")
    layers = unbubble("simulate --schedule 1f1b -p 4 -m 8 --json --costs", path).json
    assert layers["layers_per_stage"] == [2, 1, 1, 1]
    line = "simulate --schedule 1f1b -p 4 -m 8 --layers-per-stage 1,1,1,2 --json --costs"
    assert unbubble(line, path).json["makespan"] > layers["makespan"]


def test_a_plan_is_simulated_as_it_stands(unbubble, refused, tmp_path):
    path = tmp_path / "plan.json"
    made = unbubble(f"partition --layers 61 -p 4 -m 4 --objective makespan --json -o {path}").json
    answer = unbubble(f"simulate --json --plan {path}").json
    assert answer["makespan"] == made["makespan"] == 307
    assert answer["layers_per_stage"] == made["layers_per_stage"]
    assert "give nothing beside it" in refused(f"simulate -p 4 --plan {path}")
    assert "none.json: No such file" in refused("simulate --plan none.json")


SLOW_POSTS = """
unit = "s"
send_host = 0.2
recv_host = 0.1
edges = {latency = 0.3}
layers = [
    {name = "a", forward = 3, backward = 7}, {name = "b", forward = 4, backward = 6},
    {name = "c", forward = 2, backward = 5}, {name = "d", forward = 3, backward = 8},
]
"""


def test_a_plan_has_one_prediction_everywhere(unbubble, tmp_path):
    """Run said 1332 ms of a plan and simulate and trace 1324: they simulated it without the time
    that its sends and receives take of the ranks."""
    costs, plan, ran = tmp_path / "costs.toml", tmp_path / "plan.json", tmp_path / "ran.json"
    costs.write_text(SLOW_POSTS)
    made = unbubble(f"partition --costs {costs} -p 2 -m 4 -o {plan} --json").json
    loaded = load_plan(plan)
    step = predict(loaded.schedule, loaded.costs)
    assert made["predicted"] == step.in_unit(step.makespan) > made["makespan"]
    assert loaded.prediction == Prediction(makespan=step.makespan, span=step.span)
    simulated = unbubble(f"simulate --plan {plan} --json").json
    assert simulated["makespan"] == made["predicted"]
    assert f"makespan {made['predicted']:g} s" in unbubble(f"schedule show {plan}").out
    dump_recording(ran, [step])
    assert unbubble(f"trace {ran} --plan {plan} --json").json["predicted_s"] == made["predicted"]


def test_a_plan_that_pytorch_cannot_run_is_simulated_as_it_stands(unbubble, tmp_path):
    plan = tmp_path / "plan.json"
    made = unbubble(f"partition --layers 8 -p 4 -m 8 --schedule dualpipe --json -o {plan}").json
    assert unbubble(f"simulate --plan {plan} --json").json["makespan"] == made["makespan"]


def test_the_human_answer_is_short(unbubble):
    out = unbubble("simulate --schedule 1f1b -p 4 -m 8").out
    assert "bubble  27.27%" in out
    assert len(out.splitlines()) == 10


def test_compare(unbubble):
    answer = unbubble(
        "compare -p 4 -m 8 -v 2 --schedules gpipe,1f1b,interleaved,dualpipe-v --json"
    ).json
    assert [row["schedule"] for row in answer["rows"]] == [
        "gpipe", "1f1b", "interleaved-1f1b", "dualpipe-v",
    ]  # fmt: skip
    assert [row["makespan"] for row in answer["rows"][:3]] == [33, 33, 28.5]
    assert answer["best"] == "dualpipe-v"
    assert {row["num_stages"] for row in answer["rows"]} == {4, 8}


def test_compare_says_what_is_not_possible(unbubble, refused):
    answer = unbubble("compare -p 4 -m 9 -v 2 --schedules 1f1b,interleaved --json").json
    assert answer["rows"][1]["schedule"] == "interleaved-1f1b"
    assert "multiple of its rounds" in answer["rows"][1]["refused"]
    assert (
        "multiple of its rounds" in unbubble("compare -p 4 -m 9 --schedules 1f1b,interleaved").out
    )
    assert "multiple of its rounds" in refused("compare -p 4 -m 9 --schedules interleaved")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-p 4 -m 8", "give --schedule NAME, --csv FILE or --plan FILE, one of them"),
        ("--schedule 1f1b -m 8", "-p (ranks) is needed, as in -p 4"),
        ("--schedule 1f1b -p 4", "-m (microbatches) is needed, as in -m 8"),
        ("--schedule 1f1b -p 0 -m 8", "-p (ranks) is 0; it is at least 1"),
        ("--schedule 1f1b -p 4 -m -2", "-m (microbatches) is -2; it is at least 1"),
        ("--schedule 1f1b -p 4 -m 8 -v 2", "1f1b has v (stages a rank) of 1, not 2"),
        ("--schedule 1f2b -p 4 -m 8", "no schedule is called '1f2b'; did you mean"),
        ("--schedule 1f1b -p 4 -m 8 --forward -1", "--forward: -1 is negative; a time is at least"),
        ("--schedule 1f1b -p 4 -m 8 --forward nan", "--forward: 'nan' is not a finite number"),
        ("--schedule 1f1b -p 4 -m 8 --forward inf", "--forward: 'inf' is not a finite number"),
        ("--schedule 1f1b -p 4 -m 8 --forward 1e400", "1e400 is too large; a number is at most"),
        ("--schedule 1f1b -p 2 -m 8 --forward 1ms,2", "1ms carries a unit and --forward 2 does"),
        ("--schedule 1f1b -p 4 -m 8 --forward 1e25", "a time of 1e+25 is too long to add up"),
        ("--schedule 1f1b -p 4 -m 8 --forward 1e-13", "no common unit of at least 1e-12"),
        ("--schedule 1f1b -p 4 -m 8 --forward 1,2,3", "3 times for 4 ranks and 4 stages; give one"),
        ("--schedule 1f1b -p 4 -m 8 --forward 1,,3,4", "'' is not a finite number"),
        ("--schedule 1f1b -p 4 -m 8 --forward 1ms", "cannot default to 1; give --forward, and"),
        ("--schedule 1f1b -p 4 -m 8 --forward 1ms --backward 2", "give all times one, or none"),
        ("--schedule 1f1b -p 4 -m 8 --forward 3parsec", "unknown unit 'parsec'"),
        ("--schedule 1f1b -p 4 -m 8 --p2p 1,2", "--p2p is one time; a costs file gives"),
        ("--schedule dualpipe -p 4 -m 8 --backward 2", "--backward alone does not say how"),
        ("--schedule 1f1b -p 4 -m 8 --costs none.json", "none.json: No such file or directory"),
        ("--schedule 1f1b -p 4 -m 8 --costs x --forward 1", "--costs x and --forward both give"),
        ("--schedule 1f1b -p 4 -m 8 --layers-per-stage 1,2", "goes with --costs and its layers"),
        ("--csv none.csv", "none.csv: No such file or directory"),
        ("--schedule pipedream -p 4 -m 8 --what-if", "pipedream never flushes, and --what-if and"),
    ],
)  # fmt: skip
def test_bad_input(refused, line, message):
    assert message in refused(f"simulate {line}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0,0B0\n1F0,1X0\n", "row 2, column 2: '1X0' is not an action"),
        ("", "it holds no action"),
        ("0F0,0B0\n\n1F0,1B0", "row 2 is empty; every rank has at least one action"),
        ("0F0,0F0,0B0\n1F0,1B0\n", "stands in the schedule twice"),
        ("0F0,0B0\n1B0,1F0\n", "deadlocks"),
        ("0F0\n1F0,0B0\n", "stage 0 is used on rank 0 and on rank 1"),
    ],
)
def test_a_bad_csv_file(refused, tmp_path, text, message):
    (tmp_path / "bad.csv").write_text(text)
    assert message in refused("simulate --csv", tmp_path / "bad.csv")


def test_a_csv_file_that_contradicts_the_options(refused, tmp_path):
    (tmp_path / "own.csv").write_text(format_csv(generate("1f1b", 2, 3)))
    assert "has m = 3, and -m 4 was given" in refused("simulate -m 4 --csv", tmp_path / "own.csv")


@pytest.mark.parametrize(
    ("rows", "kind", "more", "message"),
    [
        (3, "stages", "", "has 3 stages and 1f1b 4; they must be the same"),
        (8, "stages", "", "1f1b 4; they must be the same (-v 2 for a schedule that takes it; rows"),
        (3, "layers", "", "4 stages need at least 4 layers and there are 3"),
        (5, "layers", " --layers-per-stage 2,3", "the costs have 2 stages and the schedule 4"),
        (5, "layers", " --layers-per-stage 2,2,2,2", "holds 8 layers and the costs 5"),
        (5, "layers", " --layers-per-stage 5,0,0,0", "0 is below 1; counts are at least 1"),
        (5, "layers", " --layers-per-stage x", "'x' is not a list of counts, as in 4,3,3"),
        (4, "stages", " --layers-per-stage 1,1,1,1", "has stages, and --layers-per-stage is for"),
    ],
)
def test_a_costs_file_that_does_not_fit(refused, tmp_path, rows, kind, more, message):
    path = costs_file(tmp_path, rows, kind)
    line = f"simulate --schedule 1f1b -p 4 -m 8{more} --costs"
    assert message in refused(line, path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "costs.toml: the file is empty"),
        ("stages = [{forward = -1, backward = 1}]", "forward: -1 is negative"),
        ("stages = [{forward = nan, backward = 1}]", "forward: 'nan' is not a finite number"),
    ],
)
def test_a_bad_costs_file(refused, tmp_path, text, message):
    (tmp_path / "costs.toml").write_text(text)
    line = "simulate --schedule 1f1b -p 1 -m 8 --costs"
    assert message in refused(line, tmp_path / "costs.toml")


def test_what_if_and_jitter(unbubble):
    line = "simulate --schedule 1f1b -p 4 -m 8 --forward 1,1,1,1.5 --what-if --jitter 5%"
    answer = unbubble(f"{line} --draws 200 --seed 3 --json").json
    assert answer == unbubble(f"{line} --draws 200 --seed 3 --json").json
    changes = {row["change"]: row["gain"] for row in answer["what_if"]}
    assert list(changes.values()) == sorted(changes.values(), reverse=True)
    assert changes["stage 3 10% faster"] > changes["stage 0 10% faster"] > 0
    assert changes["16 microbatches"] > 0 == changes["no overhead"]
    jitter = answer["jitter"]
    assert jitter["planned"] == answer["makespan"] < jitter["p95"] < jitter["p99"]
    text = unbubble(line).out
    assert "what if" in text
    assert "1000 draws: P50" in text


@pytest.mark.parametrize("jitter", ["-5%", "nan", "1e300", "a"])
def test_a_spread_that_makes_no_sense(unbubble, jitter):
    assert unbubble(f"simulate --schedule 1f1b -p 2 -m 2 --jitter {jitter}").status == 2


def test_pipedreams_step_is_that_of_its_steady_state(unbubble):
    """All of them gave the length of one fill, run and drain, as if PipeDream were 1F1B."""
    simulated = unbubble("simulate --schedule pipedream -p 4 -m 8 --json").json
    assert [simulated[key] for key in ("makespan", "span", "step", "fill_and_drain")] == [
        24, 24, 24, 9]  # fmt: skip
    assert [simulated[key] for key in ("bubble_fraction", "bubble_overhead")] == [0, 0]
    assert (simulated["idle"], simulated["utilization"]) == ([0] * 4, 1)
    compared = unbubble("compare --schedules 1f1b,pipedream -p 4 -m 8 --json").json
    assert compared["best"] == "pipedream"
    assert compared["rows"][1]["makespan"] == 24
    (row,) = unbubble("sweep --schedule pipedream -p 4 --most 2 --json").json["rows"]
    assert (row["step"], row["bubble_fraction"]) == (6, 0)
    assert simulated["critical_path_of"] == "fill, steady state and drain"
    out = unbubble("simulate --schedule pipedream -p 4 -m 8").out
    assert "24    bubble   0.00%  a step of the steady state; fill and drain, once, 9 more" in out


def test_names_that_begin_with_a_digit_are_words(unbubble):
    """A table of 1f1b alone had it at the right of its column, like a number."""
    assert "\n1f1b  " in unbubble("compare -p 4 -m 8 --schedules 1f1b").out


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("0F0,0F1,0B0\n", "rank 0, position 3, 0B1: missing; that is no whole step"),
        ("0F0,0I0\n", "rank 0, position 2, 0W0: missing"),
    ],
)
def test_a_file_that_is_no_whole_step_is_not_timed(refused, tmp_path, rows, message):
    """What was missing took no time, and nothing was said."""
    (tmp_path / "order.csv").write_text(rows)
    assert message in refused("simulate --csv", tmp_path / "order.csv")


def test_forwards_alone_are_inference(unbubble, tmp_path):
    (tmp_path / "order.csv").write_text("0F0,0F1\n1F0,1F1\n")
    assert unbubble("simulate --json --csv", tmp_path / "order.csv").json["makespan"] == 3


def test_exposed_communication_is_part_of_the_imbalance(unbubble, tmp_path):
    """Ranks in the middle send and receive twice as much as the ends, which the factor left out."""
    costs = tmp_path / "costs.json"
    rows = ",".join([ROW] * 4)
    costs.write_text(f'{{"stages": [{rows}], "edges": {{"latency": 1}}, "overlap": false}}')
    answer = unbubble("simulate --schedule 1f1b -p 4 -m 8 --json --costs", costs).json
    assert answer["imbalance_factor"] == pytest.approx(7 / 6)
    assert answer["utilization_first_order"] == pytest.approx(8 / 11 * 6 / 7)


def test_compare_takes_no_v_below_1(refused):
    assert "-v (virtual stages) is 0; it is at least 1" in refused("compare -p 4 -m 8 -v 0")


def test_a_step_ends_with_its_tail(unbubble, tmp_path):
    """Only --json said how long a step with its tail is, and of two equal steps the one that holds
    more was the fastest."""
    costs = tmp_path / "costs.json"
    costs.write_text(
        '{"stages": [{"forward": 1, "backward": 2}, {"forward": 1, "backward": 2}], '
        '"tail": {"reduce": 1, "optimizer": 1.5}}'
    )
    sizes = f"-p 2 -m 4 --costs {costs}"
    assert "step            17.5" in unbubble(f"simulate --schedule 1f1b {sizes}").out
    out = unbubble(f"compare --schedules gpipe,1f1b {sizes}").out
    assert [line.split()[3] for line in out.splitlines()[:3]] == ["step", "17.5", "17.5"]
    assert "fastest: 1f1b" in out
    assert "step" not in unbubble("compare --schedules gpipe,1f1b -p 2 -m 4").out
    for command in ("simulate --schedule pipedream", "compare --schedules pipedream,1f1b"):
        assert "without a flush weights are updated after" in unbubble(f"{command} {sizes}").out
