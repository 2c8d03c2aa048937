"""Questions from public trackers about schedules (B) and formulas (C), answered by the commands.

Each test names the thread or document in which the question was asked.
"""

import pytest

from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.formulas import deepspeed_steps, interleaved_warmup


def percent(fraction):
    return round(100 * fraction, 1)


def test_why_the_interleaved_warmup_is_what_it_is(unbubble):
    """Megatron-LM#169, #675: 10, 8, 6, 4 forwards on the ranks of p = 4, v = 2."""
    order = unbubble("schedule show interleaved -p 4 -m 8 -v 2 --json").json["order"]
    leading = [next(i for i, a in enumerate(row) if "B" in a) for row in order]
    # the steady state begins with one more forward
    assert [n - 1 for n in leading] == [10, 8, 6, 4]
    assert [interleaved_warmup(4, 2, rank) for rank in range(4)] == [10, 8, 6, 4]


def test_interleaving_over_two_ranks_works(unbubble):
    """Megatron-LM#750."""
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
    assert "idle ≥ 17.91 %, so m ≤ 32" in unbubble("bubble -p 8 --speedup 67/55").out


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


def test_a_larger_microbatch_makes_the_bubble_larger(unbubble):
    """verl_megatron_practice#9: at a fixed global batch fewer microbatches are left."""
    small = unbubble("bubble -p 8 -m 64 --json").json["bubble_fraction"]
    large = unbubble("bubble -p 8 -m 32 --json").json["bubble_fraction"]
    assert small < large


def test_deepspeeds_total_steps():
    """DeepSpeed#808."""
    assert deepspeed_steps(4, 8) == 2 * (8 + 4 - 1)


@pytest.mark.parametrize(("m", "efficiency"), [(64, 81.0), (128, 89.5)])
def test_efficiency_of_deepspeeds_blog(unbubble, m, efficiency):
    """81 % and 90 % with 4 and 8 times as many microbatches as stages."""
    answer = unbubble(f"bubble -p 16 -m {m} --json").json
    assert percent(answer["utilization"]) == efficiency
