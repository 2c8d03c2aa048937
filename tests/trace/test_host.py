"""Actions on the host alone: which part of a range is the action, and which a wait."""

import gzip
import json

import pytest
from tests.shared import shared
from tests.trace.cuda_traces import Writer

from unbubble.trace import read
from unbubble.trace.kineto import load
from unbubble.trace.profiled import observe

US = 1000


@pytest.fixture
def observed(tmp_path):
    """Writes events (category, name, start and end in µs) and reads the only step; `link`: when
    a forward operation ran and the backward one that autograd links to it."""

    def call(*events, link=()):
        writer = Writer(0, 2)
        for category, name, start, end in events:
            writer.event(category, name, start * US, end * US, 1)
        for phase, time in zip("sf", link, strict=False):
            flow = {"cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 1, "tid": 1}
            writer.events.append(flow | {"ph": phase, "ts": time})
        trace = load(str(writer.write(tmp_path, baseTimeNanoseconds=0)))
        return observe(trace, trace.windows[0], 0)

    return call


@pytest.fixture
def seen(observed):
    """The only step's actions."""
    return lambda *events: observed(*events).actions


@pytest.fixture
def told(observed):
    """What cannot be told of the only step."""
    return lambda *events: [str(doubt) for doubt in observed(*events).unknown]


STEP = ("user_annotation", "ProfilerStep#3", 0, 10_000)


def test_the_wait_in_front_is_no_part_of_the_action(seen):
    (action,) = seen(
        STEP,
        ("user_annotation", "PP:1F0", 100, 5_060),
        ("user_annotation", "gloo:recv", 50, 4_000),
        ("cpu_op", "aten::linear", 4_030, 5_000),
    )
    assert (action.start, action.end) == (4_000 * US, 5_030 * US)


def test_a_transfer_s_range_within_an_action_s_leaves_it_one_action(seen):
    """The method behind the transfer was taken for a second action of the same name."""
    (action,) = seen(
        STEP,
        ("user_annotation", "PP:1F0", 100, 5_060),
        ("user_annotation", "PP:1RECV_F0", 110, 4_005),
        ("user_annotation", "gloo:recv", 120, 4_000),
        ("user_annotation", "pp:forward_one_chunk/stage=1/mb=0", 4_020, 5_050),
        ("cpu_op", "aten::linear", 4_030, 5_000),
    )
    assert action.end == 5_050 * US
    assert 4_000 * US <= action.start <= 4_030 * US


def test_a_pair_counts_from_when_both_inputs_are_there(seen):
    """It waits for the first input, runs the forward, and waits for the backward's."""
    (action,) = seen(
        STEP,
        ("user_annotation", "PP:(0F1;1B0)OVERLAP_F_B", 100, 6_000),
        ("user_annotation", "gloo:recv", 50, 1_000),
        ("cpu_op", "aten::linear", 1_010, 2_000),
        ("user_annotation", "gloo:recv", 60, 5_000),
        ("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 5_010, 6_000),
    )
    assert action.end == 6_000 * US
    assert action.end - action.start == (1_000 + 1_000) * US


def test_a_pause_long_after_the_last_operation_is_not_the_action_s(seen):
    first, second = seen(
        STEP,
        ("user_annotation", "PP:0F0", 100, 4_000),
        ("cpu_op", "aten::linear", 120, 1_000),
        ("user_annotation", "PP:0F1", 4_000, 5_000),
        ("cpu_op", "aten::linear", 4_020, 5_000),
    )
    assert first.end == 1_050 * US
    assert second.start == 4_000 * US


def test_of_a_pause_that_may_be_wait_or_work_half_is_work(seen, told):
    """On a busy machine 7 ms between the arrival and the first operation were no work; with the
    collector of garbage at work they were the call's. That it is one of the two is said where they
    are a part of the rank's work that counts: in a long step compute was 3 % wrong untold."""

    def events(longest):
        yield (*STEP[:3], 400_000)
        for number, asleep in enumerate((20, longest, 40)):
            begin = 100 + 4_000 * number
            yield "user_annotation", f"PP:1F{number}", begin, begin + 3_900
            yield "user_annotation", "gloo:recv", begin, begin + 100
            yield "cpu_op", "aten::linear", begin + 100 + asleep, begin + 3_900

    usual, late, another = seen(*events(3_000))
    (reason,) = told(*events(3_000))
    assert reason.startswith("actions: for 0.00296 s their input was there and nothing ran yet")
    assert told(*events(140)) == []
    assert usual.start == 200 * US
    assert late.start == (4_200 + (3_000 - 40) // 2) * US
    assert another.start == 8_200 * US


@pytest.mark.parametrize("took", [100, 900])
def test_a_loss_behind_a_forward_s_range_is_told_where_it_counts(took, observed):
    """PyTorch's GPipe computes it there; it was overhead without a word."""
    seen = observed(
        STEP,
        ("user_annotation", "Forward 0", 100, 1_000),
        ("cpu_op", "aten::linear", 110, 990),
        ("cpu_op", "aten::cross_entropy_loss", 1_010, 1_010 + took),
        ("user_annotation", "Backward 0", 2_000, 3_000),
        ("cpu_op", "autograd::engine::evaluate_function: NllLossBackward", 2_010, 2_990),
        link=(1_010, 2_010),
    )
    assert seen.actions[0].end <= seen.begin + 1_005 * US
    told = [one for one in seen.unknown if "forwards went on behind their ranges" in one.reason]
    assert bool(told) == (took > 200)


def test_a_call_lasts_until_it_returns(seen):
    """A thread that lost its core at the end of an annotated call was not in the call any more."""
    (action,) = seen(
        STEP,
        ("user_annotation", "pp:forward_one_chunk/stage=0/mb=0", 100, 5_000),
        ("cpu_op", "aten::linear", 120, 1_000),
    )
    assert (action.start, action.end) == (100 * US, 5_000 * US)


@pytest.mark.parametrize("waited", [True, False])
def test_a_pause_that_no_wait_explains_is_told_behind_recovered_actions(waited, observed):
    """It may have been the action's, and was counted nowhere without a word."""
    seen = observed(
        STEP,
        ("cpu_op", "aten::linear", 100, 200),
        ("user_annotation", "gloo:send", 300 if waited else 7_010, 7_000 if waited else 7_500),
        ("cpu_op", "c10d::send", 7_010, 7_020),
        ("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 9_000, 9_500),
        link=(100, 9_000),
    )
    assert len(seen.actions) == 2
    told = [doubt for doubt in seen.unknown if "nothing ran for" in doubt.reason]
    assert bool(told) != waited


def test_stages_against_the_ranks_are_not_taken_for_the_pipeline(tmp_path):
    """GPipe's ranges name no stage. With its ranks in reverse, classes of wrong stages stood beside
    a word about clocks."""
    folder = shared("traces/torch_gloo/GPipe")
    for source, rank in (("rank0", 1), ("rank1", 0)):
        packed = (folder / f"{source}.pt.trace.json.gz").read_bytes()
        content = json.loads(gzip.decompress(packed))
        content["distributedInfo"]["rank"] = rank
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(content))
    (pipeline,) = read([tmp_path]).pipelines
    assert pipeline.timeline is None
    assert "are the stages in the order of the ranks?" in pipeline.unknown[-1]


@pytest.mark.parametrize(
    ("groups", "call"),
    [
        ({"mesh_pp": [0, 1], "mesh_dp": [0, 2]}, ("collective 1 of ranks [0, 2]", 2)),
        ({"mesh_pp": [0, 1], "mesh_dp": [0, 2], "mesh_tp": [0, 4]}, ("", 0)),
        ({"mesh_dp": [0, 2]}, ("", 0)),
        ({"mesh_pp": [0, 1]}, ("", 0)),
    ],
)
def test_a_collective_at_the_end_is_of_the_only_group_beside_the_pipeline_s(groups, call, tmp_path):
    """gloo's ranges name no group, so that the wait for another replica was communication."""
    writer = Writer(0, 8)
    for category, name, start, end in [
        ("user_annotation", "PP:0F0", 0, 40), ("cpu_op", "aten::linear", 5, 35),
        ("user_annotation", "gloo:all_reduce", 50, 90),
        ("user_annotation", "Optimizer.step#SGD.step", 95, 99),
    ]:  # fmt: skip
        writer.event(category, name, start * US, end * US, 1)
    everyone = {"default_pg": list(range(8))}
    config = [{"pg_desc": name, "ranks": ranks} for name, ranks in (everyone | groups).items()]
    info = {"rank": 0, "world_size": 8, "pg_config": config}
    trace = load(str(writer.write(tmp_path, baseTimeNanoseconds=0, distributedInfo=info)))
    one = observe(trace, trace.windows[0], 0)
    assert (one.tail[0].group, one.tail[0].members) == call
    told = not any("whom its collectives" in str(doubt) for doubt in one.unknown)
    assert told == bool(call[1])
