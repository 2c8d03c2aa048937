"""ByteDance's parquet: the published what-if results, and the classes of every step."""

import gzip
import json
import statistics

import pytest
from tests.shared import shared

from unbubble.attribution import CLASSES, attribute
from unbubble.errors import InputError
from unbubble.trace import bytedance, read
from unbubble.trace.assembly import NO_RECOMPUTE, assemble
from unbubble.trace.findings import findings
from unbubble.trace.slowdowns import slowdowns

FOLDER = "traces/bytedance_straggler"


def published(name):
    return json.loads((shared(FOLDER) / name).read_text())


@pytest.fixture(scope="module")
def analysis():
    ranks = bytedance.read(str(shared(FOLDER) / "trace-ST.parquet"))
    steps = [
        (
            one.step,
            [assemble([r.steps[i] for r in ranks if r.steps[i].replica == dp]) for dp in (0, 1)],
        )
        for i, one in enumerate(ranks[0].steps)
    ]
    return slowdowns(steps)


def test_the_published_step_times(analysis):
    right = published("result-ST.json")
    assert list(map(str, analysis.steps)) == list(right["step_t_nodelay"])
    for own, step in zip(analysis.without_gaps_s, analysis.steps, strict=True):
        assert own == pytest.approx(right["step_t_nodelay"][str(step)], rel=1e-4)
    for own, step in zip(analysis.measured_s, analysis.steps, strict=True):
        assert own == pytest.approx(right["step_t_base"][str(step)], rel=1e-3)
    assert analysis.smooth_s == pytest.approx(right["step_t_noblk"]["23"], rel=1e-4)


def test_the_published_slowdowns(analysis):
    right = published("result-ST.json")
    assert analysis.slowdown == pytest.approx(right["blocking_slowdown"], rel=1e-4)
    for own, name in ((analysis.by_stage, "stage"), (analysis.by_replica, "dp_rank")):
        expected = {int(k): v for k, v in right[f"blocking_decompose_by_{name}"].items()}
        assert own == pytest.approx(expected, rel=1e-4)
    names = {
        "forward-compute": "forward",
        "backward-compute": "backward",
        "forward-pp-comm": "forward_transfer",
        "backward-pp-comm": "backward_transfer",
    }
    for name, expected in right["blocking_decompose_by_optype"].items():
        if name != "gc":  # a marker without length
            own = analysis.by_operation[names.get(name, name)]
            assert own == pytest.approx(expected, rel=1e-4), name


def test_the_published_shares(analysis):
    assert analysis.last_stage_share == pytest.approx(published("ms-ST.json")["Ms"], rel=1e-3)
    assert analysis.worst_rank_share == pytest.approx(published("mw-ST.json")["Mw"], rel=1e-3)
    right = published("ms-ST.json")
    assert statistics.mean(analysis.without_gaps_s) == pytest.approx(right["tori"], rel=1e-4)


@pytest.mark.parametrize("step", [23, 530, 1048])
def test_the_classes_add_up_on_every_rank(step):
    trace = read([shared(FOLDER) / "trace-ST.parquet"], step=step)
    assert [p.ranks for p in trace.pipelines] == [(0, 2, 4, 6), (1, 3, 5, 7)]
    for pipeline in trace.pipelines:
        assert pipeline.unknown == (str(NO_RECOMPUTE),)
        rows = attribute(pipeline.timeline).ranks
        for row in rows:
            assert sum(row[1:7]) == row.total
        slowest = max(rows, key=lambda row: row.compute)
        assert slowest.rank == 3  # the last stage has the loss over the vocabulary
        assert slowest.imbalance_static == min(row.imbalance_static for row in rows) < 0


def test_another_table_is_named(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table({"price": [1.0], "stage": [0]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="price"):
        read([tmp_path / "t.parquet"])


def test_a_rank_that_computes_nothing_is_told(tmp_path):
    """Its last chunk was looked for among no computation."""
    from pyarrow import compute, parquet

    table = parquet.read_table(shared(FOLDER) / "trace-ST.parquet")
    other, moves = compute.not_equal(table["rank"], 0), compute.equal(table["mb_id"], -1)
    parquet.write_table(table.filter(compute.or_(other, moves)), tmp_path / "t.parquet")
    first, *_ = read([tmp_path / "t.parquet"]).pipelines
    assert first.timeline is None
    assert any("pipeline rank 0 has no action" in reason for reason in first.unknown)


def test_a_step_that_takes_no_time_has_no_classes(tmp_path):
    """Its shares were divided by its length, an internal error."""
    rows = [f"0,0,0,0,{way}-compute,0,0,0,0,0" for way in ("forward", "backward")]
    (tmp_path / "t.csv").write_text("\n".join([",".join(bytedance.COLUMNS), *rows]))
    answer = findings(read([tmp_path / "t.csv"]))
    assert answer["fractions"] is None
    assert "classes: no action of the step took any time" in answer["unknown"]


@pytest.mark.parametrize("replicas", [(0, 1), (1,)])
def test_without_its_last_stage_there_are_no_classes(replicas, tmp_path):
    """The stages before it passed for the whole pipeline, with a weak word about transfers."""
    import pyarrow
    from pyarrow import compute, parquet

    table = parquet.read_table(shared(FOLDER) / "trace-ST.parquet")
    lost = compute.and_(
        compute.equal(table["stage"], 3), compute.is_in(table["dp_rank"], pyarrow.array(replicas))
    )
    parquet.write_table(table.filter(compute.invert(lost)), tmp_path / "t.parquet")
    for replica, pipeline in enumerate(read([tmp_path / "t.parquet"]).pipelines):
        if replica not in replicas:
            assert pipeline.timeline is not None
            continue
        assert pipeline.timeline is None
        # beside a whole replica its ranks are counted, else its transfers show it
        beside = "the pipeline has 4 ranks and 3 traces are here"
        alone = "goes to stage 3, whose rank's trace is missing"
        assert (beside if len(replicas) == 1 else alone) in pipeline.unknown[-1]
        assert all(one.busy.compute > 0 for one in pipeline.observed)


def test_a_replica_that_is_missing_is_told(tmp_path):
    from pyarrow import compute, parquet

    table = parquet.read_table(shared(FOLDER) / "trace-ST.parquet")
    parquet.write_table(table.filter(compute.equal(table["dp_rank"], 1)), tmp_path / "t.parquet")
    (pipeline,) = read([tmp_path / "t.parquet"]).pipelines
    assert any("none of the rows is of dp_rank 0" in reason for reason in pipeline.unknown)


def test_a_cut_off_file_is_named(tmp_path):
    data = (shared(FOLDER) / "trace-ST.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(data[:50_000])
    with pytest.raises(InputError, match="not a readable parquet file"):
        read([tmp_path / "t.parquet"])


def test_replicas_that_wait_for_a_slow_one_are_imbalanced(tmp_path):
    """The wait for another replica's gradients was overhead of the runtime, half of the step in the
    published job AR, and a replica that waited spoke for the job in SE."""
    import pyarrow
    from pyarrow import compute, parquet

    table = parquet.read_table(shared(FOLDER) / "trace-ST.parquet")
    rows = table.filter(compute.equal(table["step"], 1048)).to_pylist()
    own = [row for row in rows if row["optype"] not in bytedance.TAIL]
    for row in own:
        for name in ("start_ts", "duration"):
            row[name] *= 1 + row["dp_rank"]
    until = {row["rank"]: row["start_ts"] + row["duration"] for row in own}
    late = max(until.values())
    for row in sorted(rows, key=lambda row: row["start_ts"]):
        if row["optype"] in bytedance.TAIL:  # each from when its rank is there, 10 ms for the last
            end = max(until[row["rank"]], late) + 0.01
            row["start_ts"], row["duration"] = until[row["rank"]], end - until[row["rank"]]
            until[row["rank"]] = end
    parquet.write_table(pyarrow.Table.from_pylist(rows, table.schema), tmp_path / "t.parquet")
    answer = findings(read([tmp_path / "t.parquet"]))
    assert answer["pipeline_ranks"] == [1, 3, 5, 7]
    assert answer["verdict"].startswith("not bubble-limited: imbalance is")
    assert answer["advice"][0]["what"] == "balance the stages and the replicas"
    assert answer["fractions"]["overhead"] < 0.05
    for row in answer["ranks"]:
        assert sum(row[f"{name}_s"] for name in CLASSES) == pytest.approx(row["total_s"])
        if row["rank"] % 2 == 0:
            assert row["imbalance_static_s"] > 0.3 * row["total_s"]


@pytest.mark.parametrize("packed", [False, True])
def test_the_table_as_text_is_the_same(packed, tmp_path):
    from pyarrow import compute, csv, parquet

    table = parquet.read_table(shared(FOLDER) / "trace-ST.parquet")
    table = table.filter(compute.equal(table["step"], 1048))
    parquet.write_table(table, tmp_path / "t.parquet")
    path = tmp_path / "t.csv"
    csv.write_csv(table, path)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    text, binary = (findings(read([p])) for p in (path, tmp_path / "t.parquet"))
    assert text["step_s"] == pytest.approx(binary["step_s"], rel=1e-6)
    assert text["fractions"] == pytest.approx(binary["fractions"], abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("seq_id", "number"), "without the column seq_id"),
        (lambda text: text.replace(",23,", ",x,", 1), "row 0 has step 'x'"),
        (lambda text: text.replace(",0.8486717,", ",,", 1), "start_ts ''; seconds"),
        (lambda text: text[:200], "row 1 has"),
        (lambda text: text.split("\n")[0], "the table has no row"),
    ],
)
def test_text_that_is_no_such_table_is_refused(change, message, tmp_path):
    from pyarrow import csv, parquet

    path = tmp_path / "t.csv"
    csv.write_csv(parquet.read_table(shared(FOLDER) / "trace-ST.parquet").slice(0, 2), path)
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=message):
        read([path])
