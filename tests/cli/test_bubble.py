"""unbubble bubble."""

import subprocess
import sys

import pytest


def test_the_keys_of_the_contract(unbubble):
    answer = unbubble("bubble -p 8 -m 64 --json").json
    assert answer["bubble_fraction"] == pytest.approx(7 / 71)
    assert answer["bubble_overhead"] == 7 / 64
    assert answer["utilization"] == pytest.approx(64 / 71)
    assert answer["microbatches_for_target"] is None
    assert answer["microbatches_for_target_legal"] is None
    assert answer["unit"] == ""


@pytest.mark.parametrize(
    ("line", "m", "legal"),
    [
        ("-p 4 --target 20%", 12, 12),
        ("-p 16 --target 0.05", 285, 285),
        ("-p 4 -v 2 --target 5%", 29, 32),
        ("-p 4 -v 2 --target 20% --framework pytorch", 6, 6),
        ("-p 8 -m 3 --target 60%", 5, 5),
        ("-p 8 -m 3 --target 60% --framework pytorch", 5, 8),
    ],
)
def test_microbatches_for_a_target(unbubble, line, m, legal):
    answer = unbubble(f"bubble {line} --json").json
    assert answer["microbatches_for_target"] == m
    assert answer["microbatches_for_target_legal"] == legal


def test_both_denominators_are_named(unbubble):
    out = unbubble("bubble -p 16 -m 8").out
    assert "bubble fraction   65.22 %  idle / (ranks × makespan) = (p−1)/(m+p−1) = 15/23" in out
    assert "bubble overhead  187.50 %  idle / total work = (p−1)/m = 15/8" in out


def test_a_schedules_bubble_time(unbubble):
    line = "bubble -p 8 -m 64 --schedule ZB_H1 --forward 10ms --backward-input 11ms"
    answer = unbubble(f"{line} --backward-weight 9ms --json").json
    assert (answer["schedule"], answer["unit"], answer["metric"]) == ("zb-h1", "s", "span")
    assert answer["bubble_time"] == pytest.approx(0.084)
    assert answer["schedule_bubble_fraction"] == pytest.approx(84 / (64 * 30 + 84))
    assert (
        "zb-h1 idles 0.084 s of the span = (p−1)(F+I−W)"
        in unbubble(f"{line} --backward-weight 9ms").out
    )


def test_pytorchs_names_are_known(unbubble):
    for name in ("Schedule1F1B", "ScheduleInterleaved1F1B", "LoopedBFS", "DualPipeV"):
        assert unbubble(f"bubble -p 4 -m 8 -v 2 --schedule {name} --json").status == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-m 8", "-p (ranks) is needed, as in -p 4"),
        ("-p 4", "-m (microbatches) is needed, as in -m 8"),
        ("-p 0 -m 8", "-p (ranks) is 0; it is at least 1"),
        ("-p 4 -m 0", "-m (microbatches) is 0; it is at least 1"),
        ("-p 4 -m 8 -v 0", "-v (virtual stages) is 0; it is at least 1"),
        ("-p x -m 8", "'x' is not a valid integer"),
        ("-p 4 --target 0", "a bubble fraction of 0 cannot be met"),
        ("-p 4 --target 100%", "a bubble fraction of 1 cannot be met"),
        ("-p 4 --target nan", "'nan' is not a finite number"),
        ("-p 4 --target 5% --framework jax", "no rule is known for 'jax'; known are any, megatron"),
        ("-p 4 -m 8 --schedule zb-v", "no closed form for the bubble of 'zb-v'; known are naive"),
        ("-p 4 -m 8 --forward -1", "--forward: -1 is negative; a time is at least 0"),
        ("-p 4 -m 8 --forward 1,2,3,4", "the closed forms are for equal stages"),
        ("-p 4 -m 8 --p2p 1", "the closed forms are for equal stages without communication"),
        ("-p 4 -m 8 --schedule zb-h1 --backward 2", "needs the parts of the backward; give"),
        ("-p 4 -m 8 --nonsense", "No such option"),
    ],
)
def test_bad_input(refused, line, message):
    assert message in refused(f"bubble {line}")


def test_it_loads_nothing_heavy():
    code = (
        "import sys; from unbubble.cli import invoke; "
        "invoke(['bubble', '-p', '8', '-m', '64', '--json']); "
        "heavy = ('torch', 'numpy', 'ortools', 'rich', 'msgspec', 'unbubble.families', "
        "'unbubble.costs', 'unbubble.simulate', 'dataclasses'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.splitlines()[1] == "[]"
