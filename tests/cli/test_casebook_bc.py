"""Questions from public trackers about schedules (B) and formulas (C), answered by the commands.

Each test names the thread or document in which the question was asked.
"""

import json

import pytest

from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.formulas import deepspeed_steps


def percent(fraction):
    return round(100 * fraction, 1)


def test_why_the_interleaved_warmup_is_what_it_is(unbubble):
    """Megatron-LM#169, #675: 10, 8, 6, 4 forwards on the ranks of p = 4, v = 2."""
    order = unbubble("schedule show interleaved -p 4 -m 8 -v 2 --json").json["order"]
    leading = [next(i for i, a in enumerate(row) if "B" in a) for row in order]
    # the steady state begins with one more forward
    assert [n - 1 for n in leading] == [10, 8, 6, 4]
    answer = unbubble("bubble -p 4 -m 8 -v 2 --json").json
    assert answer["warmup_forwards"] == [10, 8, 6, 4]
    assert "warm-up         10,8,6,4 forwards" in unbubble("bubble -p 4 -m 8 -v 2").out


@pytest.mark.parametrize(
    ("sizes", "ahead"),
    [
        ("-p 4 -m 8", [3, 2, 1, 0]),
        ("-p 4 -m 2", [2, 2, 1, 0]),
        ("-p 4 -m 4 -v 2", [8, 8, 6, 4]),
        ("-p 8 -m 16 -v 4", [38, 36, 34, 32, 30, 28, 26, 24]),
        ("-p 4 -m 12 --schedule interleaved:group=6", [12, 10, 8, 6]),
        ("-p 4 -m 10 --schedule interleaved", [11, 9, 7, 5]),
        ("-p 4 -m 8 --schedule interleaved:rule=megatron", [10, 8, 6, 4]),
        ("-p 4 -m 8 --schedule gpipe", None),
    ],
)
def test_how_many_forwards_run_ahead(unbubble, sizes, ahead):
    """By hand: p−1−r, or 2(p−r−1) + (v−1) × the microbatch group, and never more than there are."""
    assert unbubble(f"bubble {sizes} --json").json["warmup_forwards"] == ahead


@pytest.mark.parametrize(
    ("line", "legal"),
    [
        # pytorch#144702: 1F1B needs m ≥ p, GPipe does not
        ("-p 8 -m 4 --framework torch", 8), ("-p 8 -m 4 --framework torch --schedule gpipe", 4),
        ("-p 8 -m 12 --framework torchtitan --schedule looped-bfs", 12),
        ("-p 4 -m 3 --framework pytorch --schedule interleaved", 3),
        ("-p 4 -m 8 --framework pytorch --schedule dualpipe-v", 8),
        ("-p 4 -m 2 --framework pytorch --schedule naive", None),
        # Megatron: m modulo the group is 0 or at least p
        ("-p 4 -m 6 -v 2 --framework megatron", 8),
        ("-p 4 -m 6 --framework megatron-lm --schedule interleaved:group=6", 6),
        ("-p 4 -m 10 --framework megatron --schedule interleaved:group=6", 10),
        ("-p 4 -m 2 --framework nemo", 2), ("-p 6 -m 3 -v 2 --framework nemo", 6),
        ("-p 4 -m 12 -v 3 --framework verl", 12),
        # nanotron#347, of its 1F1B alone
        ("-p 8 -m 1 --framework nanotron", 7),
        ("-p 8 -m 1 --framework nanotron --schedule gpipe", 1),
        ("-p 4 -m 6 --framework deepspeed", 6), ("-p 4 -m 6 -v 2 --framework maxtext", 8),
        ("-p 4 -m 6 --framework maxtext", 8), ("-p 8 -m 1 --framework paddle", 1),
        ("-p 8 -m 4 --framework automodel --schedule gpipe", 8),
    ],
)  # fmt: skip
def test_the_same_numbers_in_different_frameworks(unbubble, line, legal):
    """PyTorch's GPipe was said not to take m < p, and Megatron's group was not looked at."""
    if legal is None:
        assert unbubble(f"bubble {line}").status == 2
        return
    answer = unbubble(f"bubble {line} --json").json
    assert answer["microbatches_legal"] == legal
    assert answer["legal"] is (answer["microbatches"] == legal)


@pytest.mark.parametrize(
    ("line", "m", "legal"),
    [
        # idle (p−1)(F+I−W) of m(F+I+W): 3/(3m+3), 27/(29m+27)
        ("-p 4 --target 10% --schedule zb-h1", 9, 9),
        ("-p 4 --target 5% --schedule zb-h1 --forward 10 --backward-input 9 --backward-weight 10",
         18, 18),
        # published from m = 2p−1 on
        ("-p 4 --target 5% --schedule zb-h2", 7, 7), ("-p 4 --target 5% --schedule zb-v", 7, 7),
        # (PP/2−1)(F&B+B−3W) = 6 of 3m, m even and at least 2p
        ("-p 8 --target 9% --schedule dualpipe", 21, 22),
        ("-p 4 --target 50% --schedule dualpipe", 8, 8),
        ("-p 4 --target 25% --schedule chimera", 4, 4),
        ("-p 4 --target 5% -v 3 --schedule interleaved:group=6", 19, 22),
        ("-p 4 --target 10% --schedule interleaved -v 2", 14, 16),
    ],
)  # fmt: skip
def test_microbatches_for_a_schedules_own_bubble(unbubble, line, m, legal):
    """Whatever the schedule, those of 1F1B were given, and its fraction stood beside them."""
    answer = unbubble(f"bubble {line} --json").json
    assert answer["microbatches_for_target"] == m
    assert answer["microbatches_for_target_legal"] == answer["microbatches"] == legal
    assert answer["bubble_fraction"] == answer["schedule_bubble_fraction"]


@pytest.mark.parametrize("line", ["zb-h1 -p 4 -m 8", "dualpipe -p 8 -m 20", "zb-v -p 4 -m 9",
                                  "chimera -p 4 -m 4", "gpipe -p 4 -m 6"])  # fmt: skip
def test_the_fraction_is_that_of_the_schedule_asked_for(unbubble, line):
    closed = unbubble(f"bubble --schedule {line} --json").json
    simulated = unbubble(f"simulate --schedule {line} --json").json
    span = closed["metric"] == "span"
    key = "bubble_fraction_span" if span else "bubble_fraction"
    assert closed["bubble_fraction"] == pytest.approx(simulated[key], abs=1e-12)
    assert closed["utilization"] == pytest.approx(1 - simulated[key])


def test_interleaving_over_two_ranks_works(unbubble):
    """Megatron-LM#750: both neighbours are one rank, which unoverlapped transfers do not bear."""
    out = unbubble("bubble -p 2 -m 4 -v 2 --framework megatron").out
    assert " legal (" in out
    assert "p > 2 where p2p communication is not overlapped" in out
    answer = unbubble("simulate --schedule interleaved -p 2 -m 4 -v 2 --json").json
    assert answer["bubble_fraction"] == pytest.approx(1 / 9)


def test_a_group_smaller_than_the_pipeline_is_refused():
    """Megatron-LM#1829."""
    with pytest.raises(InputError, match="group, 2, is from p to m"):
        generate("interleaved", 4, 8, 2, group=2)


def test_how_much_was_idle_behind_a_measured_speedup(unbubble):
    """zero-bubble#21: 55 samples/s under 1F1B and 67 under ZB-2P on eight ranks."""
    answer = unbubble("bubble -p 8 --speedup 67/55 --json").json
    assert percent(answer["idle_at_least"]) == 17.9
    assert answer["microbatches_at_most"] == 32
    assert "idle ≥ 17.91%, so m ≤ 32" in unbubble("bubble -p 8 --speedup 67/55").out
    # had it been ZB-H1, idle for 7 of 3m + 7
    line = "bubble -p 8 --speedup 67/55 --schedule zb-h1 --json"
    assert unbubble(line).json["microbatches_at_most"] == 10
    # interleaved: 3/(2m + 3) is 5/53 at m = 14.4; that bound was refused, as 14 is no multiple of 3
    answer = unbubble("bubble -p 4 -v 2 --speedup 53/48 --schedule interleaved --json").json
    assert answer["microbatches_at_most"] == 14


def test_where_zbv_puts_its_stages(unbubble):
    """torchtitan#774: a V, not a loop."""
    order = unbubble("schedule show zbv -p 4 -m 8 --json").json["order"]
    stages = [{int(action.split("F")[0]) for action in row if "F" in action} for row in order]
    assert stages == [{0, 7}, {1, 6}, {2, 5}, {3, 4}]


def test_dualpipe_keeps_two_copies_and_zbv_one():
    """DualPipe#17."""
    assert generate("dualpipe", 4, 8).placement.copies == 2
    assert generate("zb-v", 4, 8).placement.copies == 1


def test_the_times_at_which_the_figure_of_dualpipe_holds(unbubble):
    """PP-Schedule-Visualization#1: F = 1, B = 2, overlapped 3 for p = 8, m = 20."""
    line = "simulate --schedule dualpipe -p 8 -m 20 --overlapped 3 --json"
    answer = unbubble(line).json
    # (PP/2−1)(F&B+B−3W) = 3·2
    assert answer["makespan"] - max(answer["work"]) == 6


@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 2), (8, 16, 4)])
def test_efficiency_is_not_the_bubble(unbubble, p, m, v):
    """DualPipe#8: m/(m+(p−1)/v) is what is left beside the bubble."""
    answer = unbubble(f"bubble -p {p} -m {m} -v {v} --json").json
    assert answer["utilization"] == pytest.approx(m / (m + (p - 1) / v))
    assert answer["bubble_fraction"] == pytest.approx((p - 1) / v / (m + (p - 1) / v))


def test_a_bubble_of_more_than_everything(unbubble):
    """ai-engineering-from-scratch PR#66: 187.5 % of the work is 65.2 % of the time."""
    answer = unbubble("bubble -p 16 -m 8 --json").json
    assert percent(answer["bubble_overhead"]) == 187.5
    assert percent(answer["bubble_fraction"]) == 65.2


def test_the_formulas_seen_in_the_wild(unbubble):
    """(p−1)/m of Megatron's paper, (p−1)/(m+p−1) of Zero Bubble's README, MaxText's with repeats,
    and GPipe's m ≥ 4p."""
    out = unbubble("bubble -p 4 -m 16").out
    assert "idle / (ranks × makespan) = (p−1)/(m+p−1) = 3/19" in out
    assert "idle / total work = (p−1)/m = 3/16" in out
    assert percent(unbubble("bubble -p 4 -m 8 -v 2 --json").json["bubble_fraction"]) == 15.8
    assert percent(unbubble("bubble -p 4 -m 16 --json").json["bubble_fraction"]) == 15.8
    assert unbubble("bubble -p 5 -m 1 --json").json["bubble_fraction"] == pytest.approx(4 / 5)


@pytest.mark.parametrize(
    ("line", "ahead", "held"),
    [
        ("-p 4 -m 6 -v 2", [12, 10, 8, 6], 6),
        ("-p 4 -m 6 -v 2 --framework torch", [12, 10, 8, 6], 6),
        ("-p 4 -m 8 -v 2 --framework nemo", [10, 8, 6, 4], 5.5),
        ("-p 4 -m 10 -v 2 --framework paddle", [12, 10, 8, 6], 6.5),
        ("-p 4 -m 8 --schedule interleaved -v 1", [6, 4, 2, 0], 7),
        ("-p 8 -m 32 --framework maxtext", None, 32),
        ("-p 4 -m 8 -v 2 --framework maxtext", None, 8),
    ],
)  # fmt: skip
def test_a_frameworks_own_order_is_what_is_counted(unbubble, line, ahead, held):
    """PyTorch's rounds were counted as Megatron's groups of p, 5.5 microbatches in flight where
    its order holds 6; and MaxText, which runs all forwards first, was said to hold p of them."""
    answer = unbubble(f"bubble {line} --json").json
    assert (answer["warmup_forwards"], answer["in_flight"]) == (ahead, held)
    assert "under GPipe all" not in unbubble(f"bubble {line}").out


def test_megatron_takes_more_microbatches_in_a_larger_group(unbubble):
    """m = 6 was not legal on 4 ranks, and nothing said that a group of 6 makes it so."""
    for m, group in ((6, 6), (10, 5)):
        line = f"bubble -p 4 -m {m} -v 2 --framework megatron"
        assert unbubble(f"{line} --json").json["group_legal"] == group
        assert f"with --schedule interleaved:group={group} it is" in unbubble(line).out
        line = f"bubble -p 4 -m {m} --framework megatron --schedule interleaved:group={group}"
        assert unbubble(f"{line} --json").json["legal"] is True


def test_a_larger_microbatch_makes_the_bubble_larger(unbubble):
    """verl_megatron_practice#9: at a fixed global batch fewer microbatches are left."""
    batch = "bubble -p 8 --global-batch 512 --dp 8 --json"
    answers = [unbubble(f"{batch} --micro-batch {b}").json for b in (1, 2, 4)]
    assert [answer["microbatches"] for answer in answers] == [64, 32, 16]
    assert [percent(answer["bubble_fraction"]) for answer in answers] == [9.9, 17.9, 30.4]


def test_the_batch_that_a_pipeline_needs(unbubble):
    """Automodel#2575: a local batch of 4 is 4 microbatches of 1 for p = 8, and 512 / (8 · 8) = 8;
    verl#1004: one microbatch for p = 2."""
    line = "bubble -p 8 --dp 8 --framework automodel --json --global-batch"
    assert unbubble(f"{line} 32").json["microbatches_legal"] == 8
    answer = unbubble(f"{line} 512 --micro-batch 8").json
    assert (answer["microbatches"], answer["legal"]) == (8, True)
    answer = unbubble("bubble -p 2 -v 2 --global-batch 4 --dp 4 --framework verl --json").json
    assert (answer["microbatches"], answer["microbatches_legal"]) == (1, 2)
    assert "= 4 × 16" in unbubble("bubble -p 4 -m 4 --global-batch 64 --dp 4").out
    answer = unbubble("bubble -p 8 --target 5% --dp 4 --micro-batch 2 --json").json
    assert (answer["microbatches"], answer["global_batch"]) == (133, 133 * 8)
    assert "global batch         1064" in unbubble(
        "bubble -p 8 --target 5% --dp 4 --micro-batch 2").out  # fmt: skip


def test_deepspeeds_total_steps():
    """DeepSpeed#808."""
    assert deepspeed_steps(4, 8) == 2 * (8 + 4 - 1)


@pytest.mark.parametrize(("m", "efficiency"), [(64, 81.0), (128, 89.5)])
def test_efficiency_of_deepspeeds_blog(unbubble, m, efficiency):
    """81 % and 90 % with 4 and 8 times as many microbatches as stages."""
    answer = unbubble(f"bubble -p 16 -m {m} --json").json
    assert percent(answer["utilization"]) == efficiency


@pytest.mark.parametrize(
    ("schedule", "per_microbatch"), [("zb-h1", 5), ("zb-v", 5), ("1f1b", 4), ("gpipe", 4)]
)
def test_zero_bubble_with_full_recompute(unbubble, tmp_path, schedule, per_microbatch):
    """marin#6532, torchtitan#773: the forward runs again for I and once more for W."""
    again = ["recompute", "recompute_weight"]
    work = {}
    for keys in ([], again[:1], again):
        row = dict.fromkeys(["forward", "backward_input", "backward_weight", *keys], 1)
        path = tmp_path / "costs.json"
        path.write_text(json.dumps({"stages": [row] * (8 if schedule == "zb-v" else 4)}))
        line = f"simulate --schedule {schedule} -p 4 -m 8 --costs {path}"
        answer = unbubble(f"{line} --json").json
        work[len(keys)] = answer["work"][0] / 8 / (2 if schedule == "zb-v" else 1)
        told = len(keys) == 1 and schedule.startswith("zb")
        assert (len(answer["notes"]) == 1) is told
        assert ("runs the forward again for W," in unbubble(line).out) is told
    assert work == {0: 3, 1: 4, 2: per_microbatch}
