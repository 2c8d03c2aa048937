"""MegaScan and Primus: real files, their slow last stage, their clocks, and damaged ones."""

import json

import pytest
from tests.shared import shared

from unbubble.action import Kind
from unbubble.attribution import attribute
from unbubble.errors import InputError
from unbubble.trace import read
from unbubble.trace.findings import findings

MEGASCAN = "traces/megatronapp/data-1-pipeline-4-tensor-1-pp-aggregated-iter10.json"
PRIMUS = "measured/primus_mi300x/pp8"


def test_megascan_names_the_slow_last_stage():
    trace = read([shared(MEGASCAN)])
    answer = findings(trace)
    assert (trace.format, trace.step) == ("megascan", 10)
    assert answer["schedule"] == "interleaved-1f1b"
    assert (answer["num_stages"], answer["microbatches"]) == (16, 8)
    assert (answer["slowest_stage"], answer["slowest_rank"]) == (15, 3)
    assert answer["verdict"].startswith("not bubble-limited: imbalance")
    last = answer["stages"][15]["F"]["median_s"]
    assert last == pytest.approx(0.0172, abs=2e-4)
    assert last > 5 * answer["stages"][14]["F"]["median_s"]
    assert answer["advice"][0]["what"] == "balance the stages"
    assert any(reason.startswith("transfers:") for reason in answer["unknown"])
    for row in attribute(trace.pipelines[0].timeline).ranks:
        assert sum(row[1:7]) == row.total


def test_megascan_without_its_last_rank_is_told(tmp_path):
    """The stages of the others were numbered as if there were three, and nothing said so."""
    events = json.loads(shared(MEGASCAN).read_text())
    path = tmp_path / "cut.json"
    path.write_text(json.dumps([event for event in events if event["pid"] != 3]))
    answer = findings(read([path]))
    assert "stages, from the order of the ranks" in answer["recovered"]
    assert any("is the trace of a later stage missing?" in reason for reason in answer["unknown"])
    assert answer["fractions"] is None
    assert all(row["bubble_s"] is None and row["compute_s"] > 0 for row in answer["ranks"])


def test_megascan_ends_with_the_iteration():
    (pipeline,) = read([shared(MEGASCAN)]).pipelines
    tails = [e for r in range(4) for e in pipeline.timeline.events(r) if not e.action.is_compute]
    assert {e.action.kind for e in tails} == {Kind.REDUCE_GRAD}
    assert len({e.start for e in tails}) == 1  # from the last rank's arrival
    length = 712_910_000 - 770_000
    assert abs(pipeline.timeline.finish - length) <= pipeline.clocks.uncertainty


def test_primus_is_a_replay_within_a_percent():
    trace = read([shared(PRIMUS)], step=5)
    (pipeline,) = trace.pipelines
    assert pipeline.ranks == tuple(range(8))
    ladder = attribute(pipeline.timeline).ladder
    assert float(ladder.jitter / ladder.measured) == pytest.approx(0.99, abs=0.005)
    answer = findings(trace)
    assert answer["schedule"] == "1f1b"
    assert answer["slowest_stage"] == 7
    assert 0 < answer["clock_uncertainty_s"] < 0.01


@pytest.mark.parametrize("missing", [0, 3, 7])
@pytest.mark.parametrize("config", [False, True])
def test_primus_without_a_rank_is_told(tmp_path, missing, config):
    names = [f"pp_rank_{rank}.json" for rank in range(8) if rank != missing]
    for name in names + ["config.json"] * config:
        (tmp_path / name).write_text((shared(PRIMUS) / name).read_text())
    answer = findings(read([tmp_path]))
    if config or missing < 7:
        assert answer["gains"] is None
    assert "missing" in " ".join(answer["unknown"]) or "7 traces" in " ".join(answer["unknown"])


def begin(name, pid, ts):
    return {"name": name, "ph": "B", "ts": ts, "pid": pid, "tid": 0, "args": {"iteration": 1}}


def end(name, pid, ts, **args):
    args = {"iteration": 1, "microbatch": 0, "model_chunk": 0, "pp_rank": pid} | args
    return {"name": name, "ph": "E", "ts": ts, "pid": pid, "tid": 0, "args": args}


DONE = [begin("forward", 1, 1), end("forward", 1, 2)]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([begin("forward", 0, 1), *DONE], "never ends"),
        ([end("forward", 0, 1)], "has not begun"),
        ([begin("forward", 0, 5), end("forward", 0, 1)], "before it begins"),
        ([begin("forward", 0, 1), end("forward", 0, 2, microbatch="x")], "microbatch 'x'"),
        ([begin("forward", -1, 1), end("forward", -1, 2)], "pid -1"),
    ],
)
def test_damaged_megascan_is_named(tmp_path, events, message):
    path = tmp_path / "t.json"
    path.write_text(json.dumps([*events, *DONE]))
    with pytest.raises(InputError, match=message):
        read([path])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fwd_end": [1.0]}, "2 starts and 1 ends of F"),
        ({"fwd_end": [-5.0, 9.0]}, "from 0.0 to -5"),
        ({"fwd_start": "x"}, "fwd_start"),
        ({"fwd_chunk": [0, 1]}, "chunks"),
        ({"fwd_start": [0, 1e300], "fwd_end": [5, 1e300]}, "milliseconds"),
    ],
)
def test_damaged_primus_is_named(tmp_path, change, message):
    good = {"total": 40.0, "fwd_start": [0, 10], "fwd_end": [5, 15], "bwd_start": [20, 30],
            "bwd_end": [25, 35]}  # fmt: skip
    (tmp_path / "pp_rank_0.json").write_text(json.dumps({"1": good | change}))
    with pytest.raises(InputError, match=message):
        read([tmp_path / "pp_rank_0.json"])
