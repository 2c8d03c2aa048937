"""Nsight Systems exports: real ones, and a pipeline in the columns of two versions."""

import sqlite3

import pytest
from tests.shared import shared

from unbubble.action import Kind
from unbubble.attribution import attribute
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.simulate import simulate
from unbubble.trace import read

US = 1000
PROCESS = 1 << 24


@pytest.mark.parametrize(("name", "ranks"), [("h100_2gpu_1s", 2), ("mock", 1)])
def test_no_pipeline_is_invented(name, ranks):
    trace = read([shared(f"traces/nsys/{name}.sqlite")])
    (pipeline,) = trace.pipelines
    assert pipeline.timeline is None
    assert len(pipeline.observed) == ranks
    for one in pipeline.observed:
        assert one.busy.total == one.finish - one.begin
        assert one.busy.compute > 0


def export(path, timeline, *, old, again=False):
    """Writes the timeline as an export; the old version has fewer columns, texts in StringIds.

    `again`: what launches a backward is named as recompute.
    """
    database = sqlite3.connect(path)
    strings = {}

    def string(text):
        return strings.setdefault(text, len(strings) + 1)

    database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    more = "" if old else ", demangledName INTEGER, gridX INTEGER"
    database.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, "
        f"globalPid INTEGER, correlationId INTEGER, shortName INTEGER{more})"
    )
    database.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, "
        "correlationId INTEGER)"
    )
    text = "textId INTEGER" if old else "text TEXT, textId INTEGER"
    database.execute(
        f"CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, {text}, "
        "globalTid INTEGER)"
    )
    correlation = 0
    for rank in range(timeline.ranks):
        process, clock = PROCESS * (9 - rank), 0
        thread = process + 5
        for event in timeline.events(rank):
            correlation += 1
            ranges = [(clock, clock + 900, f"PP:{event.action}, op_id = {correlation}")]
            if again and event.action.kind is Kind.B:
                ranges.append((clock + 50, clock + 250, "layer 3: recompute"))
            words = "NULL, ?" if not old else "?"
            for start, end, name in ranges:
                database.execute(
                    f"INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, {words}, ?)",
                    (start, end, string(name), thread),
                )
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)",
                (clock + 100, clock + 200, thread, correlation),
            )
            kernel = (event.start, event.end, rank, process, correlation, string("gemm"))
            if not old:
                kernel += (string("gemm"), 1)
            marks = ", ".join("?" * len(kernel))
            database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({marks})", kernel)
            clock += 1000
    database.executemany(
        "INSERT INTO StringIds VALUES (?, ?)", [(i, s) for s, i in strings.items()]
    )
    database.commit()
    database.close()


@pytest.mark.parametrize("old", [False, True])
def test_a_pipeline_is_read_back(tmp_path, old):
    order = generate("1f1b", 3, 5)
    timeline = simulate(order, Costs.uniform(order.placement, forward=100 * US, backward=200 * US))
    export(tmp_path / "t.sqlite", timeline, old=old)
    (pipeline,) = read([tmp_path / "t.sqlite"]).pipelines
    assert pipeline.ranks == (0, 1, 2)  # by device, not by process
    assert pipeline.timeline.schedule.codes == order.codes
    assert pipeline.timeline.starts == timeline.starts
    wanted = [row._replace(recompute=None) for row in attribute(timeline).ranks]
    assert list(attribute(pipeline.timeline).ranks) == wanted  # nothing tells recompute
    assert any(reason.startswith("transfers:") for reason in pipeline.unknown)


def parts(folder, timeline, names):
    """An export for each of the names, of the ranks that stand behind it."""
    for name, ranks in names.items():
        export(folder / name, timeline, old=False)
        database = sqlite3.connect(folder / name)
        kept = ", ".join(str(PROCESS * (9 - rank)) for rank in ranks)
        for table, process in (("KERNEL", "globalPid"), ("RUNTIME", "globalTid - 5")):
            table = f"CUPTI_ACTIVITY_KIND_{table}"
            database.execute(f"DELETE FROM {table} WHERE {process} NOT IN ({kept})")
        database.execute(f"DELETE FROM NVTX_EVENTS WHERE globalTid - 5 NOT IN ({kept})")
        database.commit()
        database.close()
    return folder


@pytest.mark.parametrize(
    "names",
    [{f"report_rank{rank}.sqlite": [rank] for rank in range(12)},
     {f"report.{rank}.sqlite": [rank] for rank in range(12)},
     {"node8.sqlite": range(4), "node9.sqlite": range(4, 8), "node10.sqlite": range(8, 12)}],
    ids=["a name of its rank", "a number", "a file a node"],
)  # fmt: skip
def test_several_exports_are_in_the_order_of_their_numbers(tmp_path, names):
    """Rank 10 came before rank 2, whose figures it then had; nodes had the same ranks twice."""
    order = generate("1f1b", 12, 12)
    costs = Costs.uniform(order.placement, forward=100 * US, backward=200 * US)
    timeline = simulate(order, costs)
    trace = read([parts(tmp_path, timeline, names)])
    for rank in trace.ranks:
        assert {seen.action.stage for seen in rank.steps[0].actions} == {rank.rank}
    assert trace.pipelines[0].timeline.starts == timeline.starts


def test_recompute_is_told_by_ranges_of_that_name(tmp_path):
    order = generate("1f1b", 2, 3)
    timeline = simulate(order, Costs.uniform(order.placement, forward=100 * US, backward=200 * US))
    export(tmp_path / "t.sqlite", timeline, old=False, again=True)
    (pipeline,) = read([tmp_path / "t.sqlite"]).pipelines
    assert [row.recompute for row in attribute(pipeline.timeline).ranks] == [600 * US] * 2
    assert not any(reason.startswith("recompute") for reason in pipeline.unknown)


def test_another_database_is_named(tmp_path):
    database = sqlite3.connect(tmp_path / "t.db")
    database.execute("CREATE TABLE customers (id INTEGER)")
    database.commit()
    database.close()
    with pytest.raises(InputError, match="customers"):
        read([tmp_path / "t.db"])


def test_a_cut_off_file_is_named(tmp_path):
    data = shared("traces/nsys/h100_2gpu_1s.sqlite").read_bytes()
    (tmp_path / "t.sqlite").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="not a readable SQLite file"):
        read([tmp_path / "t.sqlite"])


@pytest.fixture
def changed(tmp_path):
    """A real export of two ranks after a statement of SQL."""

    def call(statement):
        path = tmp_path / "changed.sqlite"
        path.write_bytes(shared("traces/nsys/h100_2gpu_1s.sqlite").read_bytes())
        database = sqlite3.connect(path)
        database.execute(statement)
        database.commit()
        database.close()
        return path

    return call


def test_kernels_without_names_are_told(changed):
    """All of them were compute, without a word."""
    (pipeline,) = read([changed("DROP TABLE StringIds")]).pipelines
    assert any("no name, so communication" in reason for reason in pipeline.unknown)


def test_kernels_of_no_process_are_no_rank(changed):
    """They were a third rank of two."""
    path = changed("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid")
    with pytest.raises(InputError, match=r"a kernel has no globalPid and 2 processes"):
        read([path])


def test_copies_between_devices_are_communication(changed):
    """As in PyTorch's traces; they were compute."""
    path = changed("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = 10 WHERE copyKind = 8")
    before = read([shared("traces/nsys/h100_2gpu_1s.sqlite")]).pipelines[0].observed
    after = read([path]).pipelines[0].observed
    for one, other in zip(before, after, strict=True):
        assert other.busy.communication > one.busy.communication
        assert other.busy.total == one.busy.total
