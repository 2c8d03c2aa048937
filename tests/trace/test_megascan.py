"""MegaScan's newer files, with every rank on a clock of its own, and what its files do not tell."""

import json

import pytest
from tests.shared import shared
from tests.trace.megascan_traces import timetable, write_megascan

from unbubble.action import Kind
from unbubble.attribution import attribute
from unbubble.errors import InputError
from unbubble.schedule.lowering import compute_only
from unbubble.simulate import simulate
from unbubble.trace import read
from unbubble.trace.costs import observed_costs
from unbubble.trace.findings import findings

OLDER = "traces/megatronapp/data-1-pipeline-4-tensor-1-pp-aggregated-iter10.json"
US = 1_000
TIMES = [(1000, 2000), (1100, 2100), (1000, 2000), (1600, 2900)]
TRANSFER = 50
OFFSETS = {0: 40, 1: -700, 2: 1900, 3: 0, 4: 5, 5: 77, 6: -2000, 7: 350}


@pytest.fixture
def written(tmp_path):
    def call(**more):
        return write_megascan(tmp_path / "t.json", TIMES, 6, TRANSFER, offsets=OFFSETS, **more)

    return call


def test_newer_files_hold_the_actions_and_the_transfers(written):
    """They were no known trace: events are complete and name the ranks otherwise."""
    trace = read([written()])
    answer = findings(trace)
    assert (answer["format"], answer["schedule"], answer["microbatches"]) == ("megascan", "1f1b", 6)
    (pipeline,) = trace.pipelines
    assert not any(
        reason.startswith(("transfers", "order", "clocks")) for reason in answer["unknown"]
    )
    true = timetable(TIMES, 6, TRANSFER)
    for rank, row in enumerate(attribute(pipeline.timeline).ranks):
        spent = sum(end - start for name, _, start, end, _ in true[rank] if "ward" in name)
        assert row.compute - row.optimizer == spent * US
    clocks = pipeline.clocks
    assert 0 < clocks.uncertainty <= 3 * TRANSFER * US  # three hops, each bounded by an exchange
    for rank, ahead in enumerate(list(OFFSETS.values())[:4]):
        off = clocks.offsets[rank] + (ahead - OFFSETS[0]) * US
        assert abs(off) <= clocks.uncertainty
    assert len(pipeline.pairs) == 2 * 3 * 6
    for transfer in pipeline.timeline.transfers:
        took = transfer.end - transfer.start
        assert abs(took - TRANSFER * US) <= 2 * clocks.uncertainty


@pytest.mark.parametrize("transfer", [20, 300])
def test_their_costs_predict_the_step(transfer, tmp_path):
    """Exchanges hold both ranks, so that some of a rank's gaps are its own and most are none."""
    path = write_megascan(tmp_path / "t.json", TIMES, 8, transfer)
    timeline = read([path]).pipelines[0].timeline
    again = simulate(compute_only(timeline.schedule), observed_costs([timeline]))
    assert again.length == pytest.approx(timeline.length, rel=0.03)


def test_the_collectives_of_tensor_parallelism_are_communication(written):
    plain = attribute(read([written()]).pipelines[0].timeline)
    rows = attribute(read([written(reduce=30)]).pipelines[0].timeline)
    for row, whole in zip(rows.ranks, plain.ranks, strict=True):
        assert row.compute == whole.compute - 12 * 30 * US


@pytest.mark.parametrize(("dp", "tp"), [(2, 1), (1, 2), (2, 2)])
def test_replicas_and_tensor_ranks_are_pipelines_of_their_own(written, dp, tp):
    trace = read([written(dp=dp, tp=tp, iterations=3)], step=1)
    assert [one.ranks for one in trace.pipelines] == [
        tuple((p * dp + d) * tp + t for p in range(4)) for d in range(dp) for t in range(tp)
    ]
    assert all(one.timeline is not None for one in trace.pipelines)


@pytest.mark.parametrize("missing", range(4))
def test_a_missing_rank_is_told(written, missing):
    path = written()
    events = [event for event in json.loads(path.read_text()) if event["pid"] != missing]
    path.write_text(json.dumps(events))
    answer = findings(read([path]))
    assert answer["fractions"] is None
    assert "missing" in " ".join(answer["unknown"])


def test_a_rank_that_only_one_replica_lacks_is_told(written):
    """A last stage of some replica: nothing else says that the pipeline goes on."""
    path = written(dp=2)
    events = [event for event in json.loads(path.read_text()) if event["pid"] != 7]
    path.write_text(json.dumps(events))
    whole, cut = read([path]).pipelines
    assert whole.timeline is not None
    assert cut.timeline is None
    assert "the pipeline has 4 ranks and 3 traces are here" in cut.unknown[-1]


def test_the_optimizer_begins_with_the_last_rank(written):
    """Its gradient norm waits for all ranks; the wait of early ones was no work of theirs."""
    (pipeline,) = read([written()]).pipelines
    steps = [e for r in range(4) for e in pipeline.timeline.events(r)
             if e.action.kind is Kind.OPTIMIZER]  # fmt: skip
    assert len({event.start for event in steps}) == 1
    assert any(reason.startswith("tail:") for reason in pipeline.unknown)


def test_every_rank_of_an_older_file_has_a_clock_of_its_own():
    """Times count from a rank's own first event; its clocks were said to agree to 0 s."""
    (pipeline,) = read([shared(OLDER)]).pipelines
    assert pipeline.clocks.uncertainty == 3_658_000
    # the barrier before the iteration holds them together far better than the messages show
    assert max(map(abs, pipeline.clocks.offsets)) < 300_000


def test_the_tensor_ranks_of_an_older_file_are_its_threads(tmp_path):
    """Two threads of a process were one rank whose actions happened twice."""
    events = json.loads(shared(OLDER).read_text())
    path = tmp_path / "t.json"
    path.write_text(json.dumps([*events, *(event | {"tid": 1} for event in events)]))
    alone, (one, other) = read([shared(OLDER)]).pipelines[0], read([path]).pipelines
    assert (one.ranks, other.ranks) == ((0, 2, 4, 6), (1, 3, 5, 7))
    wanted = attribute(alone.timeline)
    assert attribute(one.timeline) == attribute(other.timeline) == wanted


def test_two_runs_in_a_file_are_no_tensor_ranks(tmp_path):
    """MegatronApp publishes two schedules' runs merged for a viewer, the threads telling them
    apart; they would wait for each other as ranks of one job."""
    events = json.loads(shared(OLDER).read_text())
    path = tmp_path / "t.json"
    for event in list(events):
        args = dict(event["args"])
        if "microbatch" in args:
            args["microbatch"] = 7 - args["microbatch"]
        events.append(event | {"tid": 1, "args": args})
    path.write_text(json.dumps(events))
    with pytest.raises(InputError, match=r"pid 0, tid 1 has another order .* several runs"):
        read([path])


def test_what_one_rank_recorded_is_named(tmp_path):
    rows = [{"name": "iteration", "ph": "B", "pad_before": 0},
            {"name": "forward", "ph": "B", "rel_ts": 5, "pp_rk": 0}]  # fmt: skip
    path = tmp_path / "benchmark-data-0-pipeline-0-tensor-0.json"
    path.write_text(json.dumps(rows))
    with pytest.raises(InputError, match=r"what one rank recorded; MegaScan's aggregate\.py"):
        read([path])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dur": -1}, "ends before it begins"),
        ({"dur": None}, "null"),
        ({"ts": 1e300}, "microseconds"),
        ({"args": {"iteration": 0, "pp_rk": "x"}}, "pp_rk 'x'"),
        ({"args": {"iteration": 0, "pp_rk": 0}}, "microbatch None"),
        ({"args": {"iteration": None, "pp_rk": 0}}, "iteration None"),
    ],
)
def test_damaged_newer_files_are_named(written, change, message):
    path = written()
    events = json.loads(path.read_text())
    at = next(i for i, event in enumerate(events) if event["name"] == "forward-warmup")
    events[at] |= change
    path.write_text(json.dumps(events))
    with pytest.raises(InputError, match=message):
        read([path])
