"""Which files, ranks, steps and pipelines are read, and what is said of the others."""

import gzip
import json
import os
import sqlite3
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.shared import shared
from tests.trace.cuda_traces import Writer, write_cuda

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.schedule.placement import Placement, linear
from unbubble.simulate import simulate
from unbubble.trace import read
from unbubble.trace.findings import findings
from unbubble.trace.groups import BY_TURN
from unbubble.trace.layout import parse_layout, pipelines
from unbubble.trace.sources import expand

GLOO = "traces/torch_gloo"


def timeline(ranks=2, microbatches=3):
    order = generate("1f1b", ranks, microbatches)
    return simulate(order, Costs.uniform(order.placement, forward=9000, backward=20000, p2p=500))


def test_a_folder_a_pattern_and_files_are_the_same(tmp_path):
    folder = shared(GLOO) / "1F1B"
    readings = [
        read([folder]),
        read([f"{folder}/rank*.json.gz"]),
        read(sorted(folder.glob("rank*"), reverse=True)),
    ]
    assert len({str(r.pipelines[0].timeline) for r in readings}) == 1
    assert all(r.pipelines[0].ranks == (0, 1) for r in readings)


def test_files_are_in_the_order_of_their_numbers_however_they_are_given(tmp_path):
    """A folder's were in that of their letters, node10 before node9."""
    files = [tmp_path / f"node{number}.json" for number in (8, 9, 10)]
    for path in files:
        path.touch()
    for given in ([tmp_path], [tmp_path / "node*.json"], sorted(files)):
        assert expand(given)[0] == files


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_an_executor_reads_the_same(pool):
    folder = shared(GLOO) / "ZBVZeroBubble"
    with pool(2) as executor:
        parallel = read([folder], executor=executor)
    alone = read([folder])
    assert parallel.ranks == alone.ranks
    assert findings(parallel) == findings(alone)


@pytest.mark.filterwarnings("default")  # what Dask and its own packages warn of
def test_a_cluster_of_dask_reads_the_same():
    distributed = pytest.importorskip("distributed")
    folder = shared(GLOO) / "Interleaved1F1B"
    alone = read([folder])
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        parallel = read([folder], executor=client.get_executor())
    assert parallel.ranks == alone.ranks
    assert findings(parallel) == findings(alone)


def test_plain_and_gzip_are_the_same(tmp_path):
    for path in (shared(GLOO) / "GPipe").glob("rank*.gz"):
        (tmp_path / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    plain = read([tmp_path]).pipelines[0].timeline
    assert plain.ends == read([shared(GLOO) / "GPipe"]).pipelines[0].timeline.ends


def test_a_file_of_another_kind_is_named_with_what_it_holds(tmp_path):
    (tmp_path / "a.json").write_text('{"price": 3, "colour": "red"}')
    with pytest.raises(InputError, match="price, colour"):
        read([tmp_path / "a.json"])
    (tmp_path / "b.txt").write_text("hello")
    with pytest.raises(InputError, match="b'hello'"):
        read([tmp_path / "b.txt"])
    (tmp_path / "c.nsys-rep").write_bytes(b"\\x00\\x01\\x02")
    with pytest.raises(InputError, match="nsys export"):
        read([tmp_path / "c.nsys-rep"])
    with pytest.raises(InputError, match="no file is a trace"):
        read([tmp_path])
    (tmp_path / "d.json").write_text("")
    with pytest.raises(InputError, match="empty"):
        read([tmp_path / "d.json"])


def test_others_in_the_folder_are_ignored_and_told(tmp_path):
    write_cuda(tmp_path, timeline())
    (tmp_path / "config.json").write_text('{"lr": 1}')
    trace = read([tmp_path])
    assert trace.pipelines[0].timeline is not None
    assert len(trace.ignored) == 1
    assert "lr" in trace.ignored[0]


LARGE = "x" * 300_000
"""More than the beginning by which files are told apart."""


@pytest.mark.parametrize(
    "text",
    [
        '{"lr": 1, "log": "LARGE"}',
        '{"log": "LARGE", "traceEvents": 3}',
        '[{"pp_rank": 0, "log": "LARGE"}]',
        '{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 0, "tid": 0}]}',
        '{"traceEvents": []}',
    ],
)
def test_others_are_left_out_whatever_their_size(text, tmp_path):
    """An object of 256 KiB was taken for a profiler's, whose list may begin late, and so was a
    timeline of any other program; each stopped the reading of the whole folder."""
    write_cuda(tmp_path, timeline())
    (tmp_path / "other.json").write_text(text.replace("LARGE", LARGE))
    trace = read([tmp_path])
    assert trace.pipelines[0].timeline is not None
    (ignored,) = trace.ignored
    assert "other.json: " in ignored
    with pytest.raises(InputError, match=r"other\.json: "):
        read([tmp_path / "other.json"])
    for path in tmp_path.glob("rank*"):
        path.unlink()
    with pytest.raises(InputError, match="no file is a trace"):
        read([tmp_path])


def test_a_profiler_s_list_may_begin_late(tmp_path):
    for path in write_cuda(tmp_path, timeline()).glob("*.json"):
        path.write_text(f'{{"host": "{LARGE}",' + path.read_text()[1:])
    trace = read([tmp_path])
    assert trace.pipelines[0].timeline is not None
    assert trace.ignored == ()


def test_databases_and_tables_of_others_are_left_out(tmp_path):
    write_cuda(tmp_path, timeline())
    with sqlite3.connect(tmp_path / "runs.db") as database:
        database.execute("CREATE TABLE metrics (step, loss)")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"loss": [1.0]})
    parquet.write_table(table, tmp_path / "loss.parquet")
    trace = read([tmp_path])
    assert trace.pipelines[0].timeline is not None
    table, database = trace.ignored
    assert "parquet with the columns loss" in table
    assert "SQLite with the tables metrics" in database


def test_what_is_not_there(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read([tmp_path / "nothing.json"])
    with pytest.raises(InputError, match="holds no file"):
        read([tmp_path])
    with pytest.raises(InputError, match="not a path"):
        read(["a\0b"])


def test_a_pipe_is_refused_before_it_blocks(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        read([tmp_path / "pipe"])


def test_a_plan_of_other_ranks_is_told(tmp_path):
    (pipeline,) = read([write_cuda(tmp_path, timeline())], placement=linear(3)).pipelines
    assert pipeline.timeline is None
    assert "the plan has 3 pipeline ranks and 2 traces" in " ".join(pipeline.unknown)


def test_a_rank_s_files_of_different_steps_are_one_trace(tmp_path):
    """A profiler that repeats writes a file a rank each time, and the folder was refused."""
    for step in (9, 4):
        write_cuda(tmp_path, timeline(), step=step)
        for rank in (0, 1):
            (tmp_path / f"rank{rank}.json").rename(tmp_path / f"box_{rank}.{step}.pt.trace.json")
    trace = read([tmp_path])
    assert trace.steps == (4, 9)
    assert [len(trace.pipelines_of(step)[0].ranks) for step in trace.steps] == [2, 2]


def test_a_rank_twice_is_refused(tmp_path):
    folder = write_cuda(tmp_path, timeline())
    (folder / "again_rank0.json").write_text((folder / "rank0.json").read_text())
    with pytest.raises(InputError, match="rank 0 is in both"):
        read([folder])


def test_ranks_from_the_names_where_the_files_do_not_say(tmp_path):
    for path in write_cuda(tmp_path, timeline()).glob("*.json"):
        content = json.loads(path.read_text())
        del content["distributedInfo"]
        path.write_text(json.dumps(content))
    assert read([tmp_path]).pipelines[0].ranks == (0, 1)


def test_steps_without_a_profiler_step_begin_where_actions_repeat(tmp_path):
    for rank in range(2):
        writer = Writer(rank, 2)
        for turn in range(3):
            at = turn * 100_000
            for name, begin in [("0F0", 0), ("0B0", 50_000), ("1F0", 20_000), ("1B0", 30_000)]:
                if int(name[0]) != rank:
                    continue
                start = at + begin
                writer.range(f"PP:{name}", [("gemm", start, start + 9_000, 7, {})])
        writer.write(tmp_path)
    trace = read([tmp_path], step=2)
    assert trace.steps == (0, 1, 2)
    assert [str(a) for a in trace.pipelines[0].timeline.schedule.actions(1)] == ["1F0", "1B0"]


def test_replicas_are_pipelines_of_their_own(tmp_path):
    write_cuda(tmp_path, timeline())
    for rank in (0, 1):
        content = json.loads((tmp_path / f"rank{rank}.json").read_text())
        content["distributedInfo"] = {"rank": rank + 2, "world_size": 4}
        (tmp_path / f"rank{rank + 2}.json").write_text(json.dumps(content))
    assert [p.ranks for p in read([tmp_path]).pipelines] == [(0, 1), (2, 3)]
    assert [p.ranks for p in read([tmp_path], layout="pp2,dp2").pipelines] == [(0, 1), (2, 3)]
    wrong = read([tmp_path], layout="dp2,pp2").pipelines
    assert all(p.timeline is None for p in wrong)


def test_ranks_of_two_replicas_that_are_taken_for_one_are_told(tmp_path):
    """The first rank's second stage was the other replica's, half as fast: of a quarter of the step
    it was said that the runtime took less than none."""
    order = generate("1f1b", 2, 4)
    for number, slower in enumerate((1, 2)):
        costs = Costs.uniform(order.placement, forward=90_000 * slower, backward=180_000 * slower)
        write_cuda(tmp_path, simulate(order, costs))
        for rank, called in enumerate((number, 3 - number)):
            content = json.loads((tmp_path / f"rank{rank}.json").read_text())
            content["distributedInfo"] = {"rank": called, "world_size": 4}
            (tmp_path / f"of{called}.json").write_text(json.dumps(content))
            (tmp_path / f"rank{rank}.json").unlink()
    for pipeline in read([tmp_path]).pipelines:
        assert pipeline.timeline is None
        assert BY_TURN in pipeline.recovered
        assert "which belong together --layout says" in pipeline.unknown[-1]


def test_a_replica_that_lacks_a_rank_is_not_completed_by_another_s(tmp_path):
    """Of the four files the third was missing, and the second replica's first rank joined the
    other's last one in silence."""
    write_cuda(tmp_path, timeline())
    for rank in (0, 1):
        content = json.loads((tmp_path / f"rank{rank}.json").read_text())
        content["distributedInfo"] = {"rank": rank + 2, "world_size": 4}
        (tmp_path / f"rank{rank + 2}.json").write_text(json.dumps(content))
    (tmp_path / "rank1.json").unlink()
    trace = read([tmp_path])
    assert all(p.timeline is None for p in trace.pipelines)
    assert all("--layout says it" in p.unknown[-1] for p in trace.pipelines)
    assert "the ranks 1" in trace.ignored[-1]
    first, second = read([tmp_path], layout="pp2,dp2").pipelines
    assert first.timeline is None
    assert second.timeline is not None


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_without_its_last_stage_and_without_transfers_it_is_told(name, tmp_path):
    """Nothing that is recorded leads to the missing rank, but a wait without a reason does."""
    order = generate(name, 4, 6)
    costs = Costs.uniform(order.placement, forward=9000, backward=20000)
    write_cuda(tmp_path, replace(simulate(order, costs), transfers=()))
    assert read([tmp_path]).pipelines[0].timeline is not None
    for path in tmp_path.glob("*.json"):
        content = json.loads(path.read_text())
        rank = content.pop("distributedInfo")["rank"]
        path.unlink() if rank == 3 else path.write_text(json.dumps(content))
    (pipeline,) = read([tmp_path]).pipelines
    assert pipeline.timeline is None
    assert "is the trace of a later stage missing?" in pipeline.unknown[-1]
    assert all(one.busy.compute > 0 for one in pipeline.observed)


def test_layouts():
    assert pipelines(parse_layout("tp2,pp2")) == [[0, 2], [1, 3]]
    assert pipelines(parse_layout("1,1,2,2")) == [[0, 2], [1, 3]]
    assert pipelines(parse_layout("pp=2,dp=2")) == [[0, 1], [2, 3]]
    for text in ("pp0", "tp2", "1,2,3", "pp2,pp2", "x", "pp2,tp-1"):
        with pytest.raises(InputError, match="--layout"):
            parse_layout(text)


def test_a_timeline_of_another_program_is_no_other_format(tmp_path):
    (tmp_path / "a.json").write_text(
        '{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2}]}'
    )
    source = next((shared("traces/megatronapp")).glob("*.json"))
    (tmp_path / source.name).write_bytes(source.read_bytes())
    assert read([tmp_path]).format == "megascan"
    write_cuda(tmp_path, timeline())
    with pytest.raises(InputError, match="different formats"):
        read([tmp_path])


@pytest.mark.parametrize("ranks", [(1, 0), (3, 1)])
def test_a_job_s_ranks_may_lie_against_the_stages(ranks, tmp_path):
    """The pipeline's ranks stayed in the job's order, so that no known schedule had theirs and a
    plan's differed from it."""
    write_cuda(tmp_path, timeline())
    files = [tmp_path / f"rank{rank}.json" for rank in (0, 1)]
    texts = [path.read_text() for path in files]
    for path in files:
        path.unlink()
    for rank, text in zip(ranks, texts, strict=True):
        content = json.loads(text)
        content["distributedInfo"] = {"rank": rank, "world_size": 2}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(content))
    (pipeline,) = read([tmp_path]).pipelines
    assert pipeline.ranks == ranks
    assert pipeline.timeline.schedule.codes == timeline().schedule.codes
    other = Placement(rank_of=(1, 0))
    (pipeline,) = read([tmp_path], placement=other).pipelines
    assert pipeline.ranks == ranks[::-1]
    assert pipeline.timeline.schedule.placement == other


def test_a_step_in_which_nothing_ran_is_not_the_one_shown():
    """Of two steps the shorter is looked at, which was the one behind the last kernel."""
    (path,) = shared("traces/hta").glob("mi250*")
    trace = read([path])
    assert (trace.steps, trace.step) == ((1, 2), 1)
    assert trace.pipelines[0].observed[0].busy.compute > 100_000
    assert read([path], step=2).step == 2
