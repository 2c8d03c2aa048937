"""unbubble sweep, with the runs of the case book that people could not explain."""

import json

import pytest


def test_the_keys_of_the_contract(unbubble):
    answer = unbubble("sweep -p 8 --json").json
    assert [row["microbatches"] for row in answer["rows"]] == [2**i for i in range(1, 10)]
    assert answer["rows"][3]["bubble_fraction"] == pytest.approx(7 / 23)
    assert answer["rows"][3]["gain"] == pytest.approx((16 / 23) / (8 / 15))
    assert answer["rows"][0]["gain"] is None
    assert answer["stops_at"] == 256
    assert answer["limited_by"] is None
    assert answer["verdict"] == (
        "from m = 256 on a doubling gains less than 2%; the bubble is 2.7% there"
    )


def test_every_v_is_swept_from_where_it_is_legal(unbubble):
    answer = unbubble("sweep -p 4 -v 2,4 --schedule interleaved --most 32 --p2p 0.1 --json").json
    assert {row["virtual_stages"] for row in answer["rows"]} == {2, 4}
    assert unbubble("sweep -p 4 --schedule dualpipe --json").json["rows"][0]["microbatches"] == 8
    assert "up to m = 8 every doubling pays" in unbubble("sweep -p 4 --most 8").out


@pytest.mark.parametrize(
    ("line", "verdict", "limited_by"),
    [
        # marin#6532: eight H100, throughput flat in m
        ("-p 8 --throughput 8:8077,16:7987", "observed × 0.99, the bubble model predicts × 1.30; "
         "not bubble-limited", "other"),
        # fairscale#51: the same work takes longer in more chunks
        ("-p 2 --seconds 1:30.7,2:53.5,4:81.9", "observed × 0.37", "other"),
        # unsloth PR#10280: two machines; alone it looks like more than the bubble can give
        ("-p 2 --throughput 4:1073,8:1197,16:1337,32:1438,64:1462", "observed × 1.36, the bubble "
         "model predicts × 1.23; more than the bubble gives", "other"),
        # and with the single machine's own sweep as control the bubble explains it
        ("-p 2 --throughput 4:1073,64:1462 --control 4:779,64:845", "observed × 1.26, the bubble "
         "model predicts × 1.23; bubble-limited", "bubble"),
        # a loss at the end went by in silence, since the ends alone were compared
        ("-p 2 --throughput 2:10,4:13,8:12", "the gain is the bubble's, up to m = 4; from there on "
         "throughput fell to × 0.92, which is not", "bubble"),
    ],
)  # fmt: skip
def test_whether_the_bubble_limits_a_measured_run(unbubble, line, verdict, limited_by):
    answer = unbubble(f"sweep {line} --json").json
    assert verdict in answer["verdict"]
    assert answer["limited_by"] == limited_by
    assert verdict in " ".join(unbubble(f"sweep {line}").out.split())


@pytest.mark.parametrize(
    ("line", "gain", "verdict", "limited_by"),
    [
        # torchgpipe#30: 2 to 8 GPUs, 8 chunks; 8(m+1)/(2(m+7)) = 2.4 was possible
        ("-p 2,8 -m 8 --seconds 2:371.96,8:493.3", 2.4, "p = 2 to 8: observed × 0.75, the bubble "
         "model predicts × 2.40; not bubble-limited: that many ranks cost", "other"),
        # marin#6532: 8 H100 as one pipeline or as two; (m+7)/(m+3) = 15/11
        ("-p 4,8 -m 8 --devices 8 --throughput 8:8077,4:12150", 15 / 11, "p = 8 to 4: observed × "
         "1.50, the bubble model predicts × 1.36; bubble-limited", "bubble"),
        # a transfer of 5 that nothing hides: 24 and 88.25, so that four ranks lose as predicted
        ("-p 1,4 -m 8 --forward 1 --backward 2 --p2p 5 --seconds 1:24,4:80", 24 / 88.25,
         "observed × 0.30, the bubble model predicts × 0.27; bubble-limited: the loss", "bubble"),
        ("-p 1,4 -m 8 --forward 1 --backward 2 --p2p 5 --seconds 1:24,4:24", 24 / 88.25,
         "predicts × 0.27; more than the bubble gives", "other"),
        ("-p 1,4 -m 8 --forward 1 --backward 2 --p2p 5 --seconds 1:24,4:240", 24 / 88.25,
         "observed × 0.10, the bubble model predicts × 0.27; not bubble-limited", "other"),
        ("-p 2,4 -m 12 --throughput 2:100,4:250", 2 * 13 / 15, "more than the bubble gives: "
         "something else changes with the ranks", "other"),
    ],
)  # fmt: skip
def test_whether_the_bubble_limits_more_ranks(unbubble, line, gain, verdict, limited_by):
    answer = unbubble(f"sweep {line} --json").json
    assert answer["rows"][1]["gain"] == pytest.approx(gain)
    assert verdict in answer["verdict"]
    assert (answer["limited_by"], answer["ranks"]) == (limited_by, None)
    assert verdict in unbubble(f"sweep {line}").out


def test_ranks_share_the_times_of_the_model(unbubble, tmp_path):
    line = "sweep -p 2,4 -m 8 --forward 8ms --backward 16ms --p2p 1ms"
    rows = unbubble(f"{line} --json").json["rows"]
    for row in rows:
        p = row["ranks"]
        share = f"--forward {8 / p}ms --backward {16 / p}ms --p2p 1ms"
        alone = unbubble(f"simulate --schedule 1f1b -p {p} -m 8 {share} --json").json
        assert row["step"] == pytest.approx(alone["makespan"])
    assert "of p = 2, 4 the fastest is p = 4; the bubble is" in unbubble(line).out
    # layers are split anew
    (tmp_path / "costs.json").write_text(
        json.dumps({"layers": [{"forward": 1, "backward": 2}] * 8})
    )
    rows = unbubble(f"sweep -p 2,4 -m 8 --costs {tmp_path}/costs.json --json").json["rows"]
    assert [row["step"] for row in rows] == [9 * 12, 11 * 6]
    # half of the model's backward is not given
    rows = unbubble("sweep -p 2,4 -m 8 --forward 2 --backward-input 2 --json").json["rows"]
    assert [row["step"] for row in rows] == [9 * 5 / 2, 11 * 5 / 4]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-p 4 -m 8", "-m goes with several -p; with one, it is m that is swept"),
        ("-p 4 --devices 8", "--devices goes with several -p"),
        ("-p 2,4", "-m (microbatches) is needed"),
        ("-p 2,2 -m 4", "-p: 2 is given twice"),
        ("-p 0,2 -m 4", "-p: 0 is below 1"),
        ("-p 2,3 -m 8 --devices 4", "--devices 4 is no multiple of p = 3"),
        ("-p 2,4 -m 8 --forward 1,2", "--forward is a list, and with several -p there is one time"),
        ("-p 2,4 -m 8 --seconds 2:1,3:1", "the measurements are of p = 2, 3 and -p is 2, 4"),
        ("-p 2,4 -m 8 --memory 1GiB", "several -p go without --plan, --memory and further -v"),
        ("", "-p (ranks) is needed"),
        ("-p 8 -v 0", "-v: 0 is below 1"),
        ("-p 8 --most 0", "--most is 0; the first m is 2"),
        ("-p 8 --most 1", "--most is 1; the first m is 2, so it is at least that"),
        ("-p 8 --pays x", "'x' is not a finite number"),
        ("-p 8 --pays -1%", "--pays is -1%: a doubling that loses does not pay"),
        ("-p 8 --pays 2", "--pays is 2: twice the microbatches give at most twice the throughput"),
        ("-p 8 -v 2,2 --schedule interleaved", "-v: 2 is given twice"),
        ("-p 8 --throughput 8:1,16:2,8:3", "--throughput: m = 8 is given twice"),
        ("-p 8 --seconds 8:1,16:2 --control 8:1,8:1", "--control: m = 8 is given twice"),
        ("-p 8 --memory 1GiB", "the costs know no bytes"),
        ("-p 8 --schedule dualpipe --most 8", "dualpipe takes none of m = 2, 4, 8, … up to 8"),
        ("-p 8 --forward 0 --backward 0", "the step takes no time; give times above 0"),
        ("-p 8 --throughput 8", "'8' is not M:X, as in 8:8077"),
        ("-p 8 --throughput 0:8,2:1", "'0:8' is not M:X"),
        ("-p 8 --throughput 8:0,16:1", "'8:0' must be above 0"),
        ("-p 8 --throughput 8:1", "at two numbers of microbatches at least"),
        ("-p 8 --throughput 8:1,16:2 --seconds 8:1,16:2", "both give measurements; use one"),
        ("-p 8 --throughput 8:1,16:2 --control 8:1,32:1", "--control has m = 8, 32 and the sweep"),
        ("-p 8 --control 8:1,32:1", "--control goes with --throughput or --seconds"),
        ("-p 8 -v 2,4 --schedule interleaved --throughput 8:1,16:2", "give only that one"),
    ],
)
def test_bad_input(refused, line, message):
    assert message in refused(f"sweep {line}")


def test_a_sweep_holds_what_the_simulation_does(unbubble, tmp_path):
    """A sweep once forgot that PipeDream keeps several versions of its weights, and took them for
    fitting into memories that are too small."""
    stage = {"forward": 1, "backward": 2, "weight_bytes": 1000, "held_until_weight_bytes": 10}
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"stages": [stage] * 2}))
    line = f"--schedule pipedream -p 2 --costs {path}"
    held = unbubble(f"simulate {line} -m 2 --json").json["peak_bytes"]
    assert held == [2 * 1000 + 2 * 10, 1000 + 10]
    assert unbubble(f"sweep {line} --json").json["rows"][0]["peak_bytes"] == max(held)


@pytest.mark.parametrize("pays", ["0.5%", "2.5%", "12.5%"])
def test_the_gain_that_is_asked_for_is_told_as_it_is(unbubble, pays):
    """It was rounded to whole percent: less than 0%."""
    assert f"a doubling gains less than {pays};" in unbubble(f"sweep -p 4 --pays {pays}").out


def test_one_row_says_nothing_of_doubling(unbubble):
    answer = unbubble("sweep -p 2 --most 3 --json").json
    assert answer["verdict"].startswith("only m = 2 was simulated: nothing to compare it with;")
    assert answer["stops_at"] is None


HEAVY = """
unit = "s"
[[layers]]
forward = 1
backward = 2
weight_bytes = 1_000
held_until_input_bytes = 1
"""


def test_a_v_that_is_refused_is_left_out_and_the_others_are_swept(unbubble, refused, tmp_path):
    """Two heavy layers of four: v = 2 puts both on one rank, where they do not fit; v = 3 needs
    six layers. Either ended the whole sweep."""
    light = HEAVY[HEAVY.index("[[") :].replace("1_000", "1")
    heavy = HEAVY[HEAVY.index("[[") :]
    path = tmp_path / "costs.toml"
    path.write_text(HEAVY + light + heavy + light)
    plan = tmp_path / "plan.json"
    split = f"partition --costs {path} -p 2 -v 2 -m 4 --schedule interleaved -o {plan}"
    assert unbubble(split).status == 0
    for costs in (f"-p 2 --schedule interleaved --costs {path}", f"--plan {plan}"):
        line = f"sweep {costs} --memory 1500 --most 4"
        answer = unbubble(f"{line} -v 1,2,3 --json").json
        assert {row["virtual_stages"] for row in answer["rows"]} == {1}
        reasons = {each["virtual_stages"]: each["reason"] for each in answer["skipped"]}
        assert "m = 2 already holds" in reasons[2]
        assert "6 layers" in reasons[3]
        assert "v = 2 is left out: m = 2 already holds" in unbubble(f"{line} -v 1,2,3").out
        assert "no -v can be swept: " in refused(f"{line} -v 2,3")


def test_of_two_that_were_simulated_one_fits(unbubble, tmp_path):
    """The second row stood in the table, and "only m = 2 was simulated" below it."""
    path = tmp_path / "costs.toml"
    path.write_text(HEAVY.replace("input_bytes = 1", "input_bytes = 100"))
    line = f"sweep -p 1 --schedule gpipe --costs {path} --memory 1300"
    out = unbubble(line).out
    assert "only m = 2 fits: nothing to compare it with" in out
    assert "m = 4 does not fit" in out
    assert "only m = 2 was simulated" in unbubble("sweep -p 3 --most 3").out
