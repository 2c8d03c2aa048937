"""Questions from public trackers about memory (D, and B where they are about it).

Each test names the thread in which the question was asked.
"""

import json

import pytest

GIB = 1 << 30


@pytest.fixture
def costs_of(tmp_path):
    """The path of a costs file with these GiB of weights, and of activations of a microbatch."""

    def write(weights, held, key="held_until_weight_bytes"):
        rows = [
            {"forward": 1, "backward_input": 1, "backward_weight": 1, "weight_bytes": w * GIB,
             key: h * GIB}
            for w, h in zip(weights, held, strict=True)
        ]  # fmt: skip
        path = tmp_path / "costs.json"
        path.write_text(json.dumps({"stages": rows}))
        return path

    return write


def gib(answer):
    return [held / GIB for held in answer["peak_bytes"]]


def test_the_first_rank_of_equal_ones_holds_most(unbubble):
    """DeepSpeed#4477: min(p − s, m) microbatches."""
    for m, held in ((16, [8, 7, 6, 5, 4, 3, 2, 1]), (3, [3, 3, 3, 3, 3, 3, 2, 1])):
        answer = unbubble(f"simulate --schedule 1f1b -p 8 -m {m} --json").json
        assert answer["peak_activations"] == held
        assert answer["weight_bytes"] is answer["peak_bytes"] is None


def test_more_microbatches_need_more_memory_up_to_p(unbubble, costs_of):
    """DeepSpeed#4602 went from one microbatch to two and ran out of memory."""
    costs = costs_of([10, 10, 10, 10], [2, 2, 2, 2])
    peaks = [
        gib(unbubble(f"simulate --schedule 1f1b -p 4 -m {m} --costs {costs} --json").json)[0]
        for m in (1, 2, 4, 8, 32)
    ]
    assert peaks == [12, 14, 18, 18, 18]


def test_why_two_stages_are_not_half(unbubble, costs_of):
    """DeepSpeed#3676: two microbatches in flight on the first stage, one on the last."""
    costs = costs_of([3, 1], [4, 4])
    answer = unbubble(f"simulate --schedule 1f1b -p 2 -m 8 --costs {costs} --json").json
    assert answer["weight_bytes"] == [3 * GIB, GIB]
    assert gib(answer) == [3 + 2 * 4, 1 + 4]
    out = unbubble(f"simulate --schedule 1f1b -p 2 -m 8 --costs {costs}").out
    assert out.splitlines()[-2:][0].split()[-2:] == ["11", "GiB"]


def test_the_head_makes_the_last_stage_heaviest(unbubble, costs_of):
    """libai PR#326, and DeepSpeed#1378: the ends hold the embedding and the head."""
    costs = costs_of([3, 2, 2, 9], [1, 1, 1, 1])
    answer = unbubble(f"simulate --schedule 1f1b -p 4 -m 8 --costs {costs} --json").json
    assert gib(answer) == [7, 5, 4, 10]


def test_a_v_puts_both_ends_on_the_first_rank(unbubble, costs_of):
    """zero-bubble#36: as many activations, and embedding and head together."""
    costs = costs_of([5, 1, 1, 5], [1, 1, 1, 1])
    answer = unbubble(f"simulate --schedule zb-v -p 2 -m 8 --costs {costs} --json").json
    assert answer["weight_bytes"] == [10 * GIB, 2 * GIB]
    assert answer["peak_activations"] == [2, 2]
    assert gib(answer) == [10 + 4, 2 + 4]


def test_two_copies_are_compared_at_the_same_number_of_stages(unbubble, costs_of):
    """DualPipe#17: as many stages need half the ranks under ZB-V, which hold as much each."""
    costs = costs_of([1, 2, 3, 4], [0, 0, 0, 0])
    dual = unbubble(f"simulate --schedule dualpipe -p 4 -m 8 --costs {costs} --json").json
    folded = unbubble(f"simulate --schedule zb-v -p 2 -m 8 --costs {costs} --json").json
    assert dual["weight_bytes"] == [5 * GIB] * 4
    assert folded["weight_bytes"] == [5 * GIB] * 2


@pytest.mark.parametrize(("p", "m", "held"), [(16, 32, 17), (8, 20, 9), (4, 10, 5)])
def test_what_dualpipe_has_in_flight(unbubble, p, m, held):
    """profile-data#18 and DualPipe#23: p + 1 microbatches."""
    answer = unbubble(f"simulate --schedule dualpipe -p {p} -m {m} --json").json
    assert set(answer["peak_activations"]) == {held}


def test_every_version_of_the_weights_counts(unbubble, costs_of):
    """Without a flush rank r keeps p − r of them; the bytes held one."""
    costs = costs_of([1, 1, 1, 1], [1, 1, 1, 1])
    line = f"--costs {costs} -p 4 -m 12"
    answer = unbubble(f"simulate --schedule pipedream {line} --json").json
    assert answer["weight_bytes"] == [4 * GIB, 3 * GIB, 2 * GIB, GIB]
    assert gib(answer) == [8, 6, 4, 2]
    rows = unbubble(f"compare --schedules gpipe,1f1b {line} --json").json["rows"]
    assert [max(gib(row)) for row in rows] == [13, 5]
    assert "13 GiB" in unbubble(f"compare --schedules gpipe,1f1b {line}").out


def test_what_is_let_go_with_the_input_gradient(unbubble, costs_of):
    """zero-bubble#63: a part goes with I, which ZB-H1 runs long before W on the last rank."""
    late = costs_of([0, 0], [1, 1])
    line = "simulate --schedule zb-h1 -p 2 -m 6 --json --costs"
    assert gib(unbubble(f"{line} {late}").json) == [2, 2]
    early = costs_of([0, 0], [1, 1], "held_until_input_bytes")
    assert gib(unbubble(f"{line} {early}").json) == [2, 1]


@pytest.mark.parametrize(
    "line",
    [
        "1f1b -p 8 -m 64", "1f1b -p 8 -m 3", "gpipe -p 4 -m 12", "eager-1f1b -p 4 -m 10",
        "interleaved -p 8 -m 16 -v 2", "interleaved -p 4 -m 12 -v 4", "interleaved -p 4 -m 10 -v 2",
        "interleaved:group=6 -p 4 -m 12 -v 2", "interleaved:rule=megatron -p 4 -m 8 -v 3",
        "looped-bfs -p 4 -m 8 -v 2", "dualpipe -p 8 -m 20", "zb-v -p 4 -m 8", "zb-h2 -p 4 -m 12",
        "naive -p 4 -m 1",
    ],
)  # fmt: skip
def test_what_the_fullest_rank_holds_by_closed_form(unbubble, line):
    """A lesson's table said p · v for interleaved schedules (ai-engineering-from-scratch PR#66)."""
    closed = unbubble(f"bubble --schedule {line} --json").json["in_flight"]
    assert closed == max(unbubble(f"simulate --schedule {line} --json").json["peak_activations"])
    assert (
        f"in flight       {closed:>9g}  microbatches" in unbubble(f"bubble --schedule {line}").out
    )
