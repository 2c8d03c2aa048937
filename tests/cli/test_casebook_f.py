"""Questions from public trackers about hangs, order and shapes (F), answered by the commands.

Each test names the thread in which the question was asked.
"""

import json

import pytest


@pytest.fixture
def checked(unbubble, tmp_path):
    """`checked(rows, send)` gives status and answer of `schedule check`."""

    def call(rows, send="blocking", *more):
        path = tmp_path / "order.csv"
        path.write_text(rows if isinstance(rows, str) else "\n".join(rows) + "\n")
        result = unbubble("schedule check", path, "--json", "--send", send, *more)
        return result.status, json.loads(result.out)

    return call


@pytest.fixture
def exported(unbubble):
    """The rows of a schedule with its sends and receives."""

    def call(line):
        return unbubble(f"schedule export {line} --with-comms --plain").out.splitlines()

    return call


def test_every_rank_sends_first(checked):
    """sglang PR#23645: sends wait for their receives; cured by receiving first on odd ranks."""
    first = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1"
    sends = "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1"
    status, answer = checked([first, sends], "rendezvous")
    assert (status, answer["deadlock"]) == (3, ["0SEND_F1", "1SEND_B0"])
    receives = "1RECV_F0,1F0,1B0,1RECV_F1,1SEND_B0,1F1,1B1,1SEND_B1"
    assert checked([first, receives], "rendezvous")[0] == 0
    for send in ("buffered", "batched"):
        assert checked([first, sends], send)[0] == 0


@pytest.mark.parametrize(("p", "v"), [(4, 2), (2, 2), (4, 3)])
def test_interleaved_ranks_that_post_one_by_one(checked, exported, p, v):
    """Megatron-LM#5240, #750: unbatched transfers of p = 4, v = 2, and both neighbours the same
    rank where p = 2."""
    line = f"interleaved-1f1b -p {p} -m {2 * p} -v {v}"
    late = exported(f"{line} --receive just-in-time")
    status, answer = checked(late)
    assert (status, answer["faults"]) == (3, [])
    assert {blocked["rank"] for blocked in answer["blocked"]} == set(range(p))
    assert checked(late, "buffered")[0] == 0
    assert checked(exported(line))[0] == 0


def test_tensors_out_of_order(checked, exported):
    """Megatron-LM#1451, #1495: p = 2, v = 2, and a rank receives in another order than is sent."""
    rows = exported("interleaved-1f1b -p 2 -m 4 -v 2")
    swapped = rows[1].replace("1RECV_F0", "x").replace("1RECV_F1", "1RECV_F0")
    status, answer = checked([rows[0], swapped.replace("x", "1RECV_F1")])
    assert status == 3
    assert {(fault["rank"], fault["action"], fault["fault"]) for fault in answer["faults"]} == {
        (1, "1RECV_F1", "rank 0 sends what 1RECV_F0 receives before it"),
        (1, "1RECV_F0", "it comes after the forward that needs it"),
    }


def test_ranks_that_disagree_about_the_number_of_microbatches(checked):
    """verl#6176: dynamic batches; every rank must have the same m."""
    rows = ["0F0,0F1,0B0,0F2,0B1,0B2", "1F0,1B0,1F1,1B1,1F2,1B2", "2F0,2B0,2F1,2B1"]
    status, answer = checked(rows)
    assert status == 3
    assert {(fault["rank"], fault["action"]) for fault in answer["faults"]} == {
        (2, "2F2"), (2, "2B2")}  # fmt: skip


def test_a_transfer_with_the_wrong_rank(checked, exported):
    """Megatron-LM#620: one rank's shapes went to a rank that did not wait for them."""
    rows = exported("1f1b -p 4 -m 4")
    rows[2] = rows[2].replace("2SEND_F1", "2SEND_F0")
    status, answer = checked(rows)
    assert status == 3
    assert {"2SEND_F0", "2SEND_F1"} <= {fault["action"] for fault in answer["faults"]}


def test_a_stage_without_anything_to_do_for_a_microbatch(checked):
    """DeepSpeed#1522 hung with a stage that had no parameters of its own; a missing backward is
    told, whoever waits for it."""
    rows = ["0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1", "2F0,2F1,2B1"]
    status, answer = checked(rows)
    assert (status, [fault["action"] for fault in answer["faults"]]) == (3, ["2B0"])
    # rank 2 waits behind rank 1, whose second forward comes after the backward
    assert answer["deadlock"] == ["0B0", "1B0", "2F1"]
