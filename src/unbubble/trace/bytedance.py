"""ByteDance's table of operations (the straggler what-if analysis): all ranks, many steps; parquet,
or the same as comma-separated text.

Columns: dp_rank, stage, rank, step, optype, start_ts and duration (seconds from the step's start,
clocks aligned by the profiler), seq_id (the count of the optype in the step), mc and mb_id (model
chunk and microbatch of a computation). A send or receive lasts from its posting; collectives wait
for their last member, also those across the replicas.
"""

import csv
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from io import TextIOWrapper
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from unbubble.action import Action, Kind
from unbubble.errors import InputError, some
from unbubble.trace.events import open_plain
from unbubble.trace.intervals import length, outside, union
from unbubble.trace.names import NO_STAGE
from unbubble.trace.observed import NS, About, Busy, Doubt, HalfTransfer, Observed, RankSteps, Seen
from unbubble.trace.timeline import without_waits

COLUMNS = (
    "dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id",
)  # fmt: skip
MAX_ROWS = 50_000_000
MAX_SECONDS = 1e9

COMPUTE = {"forward-compute": Kind.F, "backward-compute": Kind.B}
TRANSFERS = {
    "forward-send": Kind.SEND_F,
    "forward-recv": Kind.RECV_F,
    "backward-send": Kind.SEND_B,
    "backward-recv": Kind.RECV_B,
}
HEAD = {"params-all-gather": Kind.UNSHARD}
TAIL = {
    "layernorm-grads-all-reduce": Kind.REDUCE_GRAD,
    "embedding-grads-all-reduce": Kind.REDUCE_GRAD,
    "grads-reduce-scatter": Kind.REDUCE_GRAD,
    "separate-grads-all-reduce": Kind.REDUCE_GRAD,
    "optimizer-clip-main-grad": Kind.CLIP,
    "optimizer": Kind.OPTIMIZER,
}


class Row(NamedTuple):
    """One operation; ns from the step's start."""

    dp: int
    stage: int
    rank: int
    step: int
    optype: str
    start: int
    end: int
    number: int
    chunk: int
    microbatch: int


def read(source: str) -> list[RankSteps]:
    """Every rank of the file, with all its steps.

    Raises InputError for a file that is not such a trace. Parquet needs pyarrow
    (`unbubble[trace]`).
    """
    steps: dict[int, list[Row]] = defaultdict(list)
    for row in _rows(source):
        steps[row.step].append(row)
    if not steps:
        raise InputError(f"{source}: the table has no row")
    pp = 1 + max(row.stage for rows in steps.values() for row in rows)
    by_rank: dict[int, list[Observed]] = defaultdict(list)
    for number in sorted(steps):
        for one in _step(source, number, steps[number], pp):
            by_rank[one.rank].append(one)
    return [
        RankSteps(rank=rank, source=f"{source} (rank {rank})", steps=tuple(found))
        for rank, found in sorted(by_rank.items())
    ]


def columns_of(source: str | Path) -> list[str] | None:
    """The names of a parquet file's columns, or None where it cannot be read."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return None
    try:
        return list(map(str, pyarrow.parquet.read_schema(source).names))
    except (pyarrow.ArrowException, OSError, ValueError):
        return None


def _rows(source: str) -> Iterator[Row]:
    with open(source, "rb") as file:
        parquet = file.read(4) == b"PAR1"
    for i, cells in enumerate(_of_parquet(source) if parquet else _of_text(source)):
        yield _row(source, i, cells)


def _of_text(source: str) -> Iterator[Mapping[str, Any]]:
    """The rows of the table as comma-separated text, plain or gzip."""
    try:
        with open_plain(source) as plain:
            rows = csv.reader(TextIOWrapper(plain, "utf-8-sig", newline=""))
            names = next(rows, [])
            _expect_columns(source, names)
            places = {name: names.index(name) for name in COLUMNS}
            for cells in rows:
                if cells:
                    yield {
                        name: _cell(name, cells[place]) if place < len(cells) else None
                        for name, place in places.items()
                    }
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{source}: not a readable table: {error}") from None


def _cell(name: str, text: str) -> Any:
    if name == "optype":
        return text
    try:
        return float(text) if name in ("start_ts", "duration") else int(text)
    except ValueError:
        return text


def _expect_columns(source: str, names: Sequence[str]) -> None:
    if absent := [name for name in COLUMNS if name not in names]:
        raise InputError(
            f"{source}: a table without the column {absent[0]}; ByteDance's traces "
            f"have {', '.join(COLUMNS)}, this one {some(names)}"
        )


def _of_parquet(source: str) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            f"{source}: parquet traces need pyarrow; pip install 'unbubble[trace]'"
        ) from None
    try:
        file = pyarrow.parquet.ParquetFile(source)
        _expect_columns(source, file.schema_arrow.names)
        if file.metadata.num_rows > MAX_ROWS:
            raise InputError(f"{source}: {file.metadata.num_rows} rows are too many to read")
        table = file.read(columns=list(COLUMNS)).to_pydict()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{source}: not a readable parquet file: {reason[:200]}") from None
    for values in zip(*(table[name] for name in COLUMNS), strict=True):
        yield dict(zip(COLUMNS, values, strict=True))


def _row(source: str, i: int, cells: Mapping[str, Any]) -> Row:
    start, duration = cells["start_ts"], cells["duration"]
    for name in ("start_ts", "duration"):
        value = cells[name]
        good = isinstance(value, (int, float)) and isfinite(value) and abs(value) < MAX_SECONDS
        if not good or (name == "duration" and value < 0):
            raise InputError(f"{source}: row {i} has {name} {value!r}; seconds were expected")
    for name in ("dp_rank", "stage", "rank", "step", "seq_id", "mc", "mb_id"):
        value = cells[name]
        least = -1 if name in ("mc", "mb_id") else 0
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 23:
            raise InputError(f"{source}: row {i} has {name} {value!r}; a count was expected")
    if not isinstance(cells["optype"], str):
        raise InputError(f"{source}: row {i} has optype {cells['optype']!r}; a name was expected")
    return Row(
        cells["dp_rank"], cells["stage"], cells["rank"], cells["step"], cells["optype"],
        round(start * NS), round((start + duration) * NS),
        cells["seq_id"], cells["mc"], cells["mb_id"],
    )  # fmt: skip


def _step(source: str, number: int, rows: Sequence[Row], pp: int) -> Iterator[Observed]:
    """All ranks of one step, the waits within collectives taken out."""
    ranks: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        ranks[row.rank].append(row)
    begin, finish = min(r.start for r in rows), max(r.end for r in rows)
    order = sorted(ranks)
    replicas = {r.dp for r in rows}
    lost = sorted(set(range(max(replicas) + 1)) - replicas)
    heads = without_waits([list(_collectives(ranks[r], HEAD)) for r in order])
    tails = without_waits([list(_collectives(ranks[r], TAIL)) for r in order])
    for rank, head, tail in zip(order, heads, tails, strict=True):
        own = sorted(ranks[rank], key=lambda r: (r.start, r.end))
        halves, unknown = _halves(own, pp)
        if lost:
            unknown.append(
                Doubt(
                    About.REPLICAS,
                    f"none of the rows is of dp_rank {some(lost)}, for which collectives may have "
                    "waited",
                )
            )
        yield Observed(
            rank=rank,
            source=source,
            step=number,
            begin=begin,
            finish=finish,
            busy=_busy(own, begin, finish),
            host=source,
            replica=own[0].dp,
            head=tuple(head),
            actions=tuple(
                Seen(
                    Action(COMPUTE[r.optype], r.chunk * pp + r.stage, r.microbatch), r.start, r.end
                )
                for r in own
                if r.optype in COMPUTE
            ),
            tail=tuple(tail),
            halves=tuple(halves),
            unknown=tuple(unknown),
        )


def _collectives(rows: Sequence[Row], kinds: Mapping[str, Kind]) -> Iterator[Seen]:
    for row in sorted(rows, key=lambda r: (r.start, r.end)):
        if row.optype in kinds:
            action = Action(kinds[row.optype], NO_STAGE)
            yield Seen(action, row.start, row.end, name=row.optype, group=_group(row))


def _group(row: Row) -> str:
    """The call that all its members share: a stage's replicas, a pipeline's ends, or everyone."""
    call = f"{row.optype}.{row.number}"
    if row.optype in ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"):
        return f"{call} of stage {row.stage}"
    if row.optype == "embedding-grads-all-reduce":
        return f"{call} of replica {row.dp}"
    return call if row.optype == "optimizer-clip-main-grad" else ""


def _halves(rows: Sequence[Row], pp: int) -> tuple[list[HalfTransfer], list[Doubt]]:
    """Sends and receives named by their order: the k-th forward-send is of the k-th forward whose
    output leaves the rank, and so on. A transfer beyond the last stage keeps its name, so that the
    assembly can tell which rank's rows are missing."""
    last = max((r.chunk for r in rows if r.optype in COMPUTE), default=0) * pp + pp - 1
    found: list[HalfTransfer] = []
    unknown: list[Doubt] = []
    for optype, kind in TRANSFERS.items():
        direction = "forward-compute" if optype.startswith("forward") else "backward-compute"
        ends = {Kind.SEND_F: last, Kind.RECV_F: 0, Kind.SEND_B: 0, Kind.RECV_B: last}
        makers = [r for r in rows if r.optype == direction and r.chunk * pp + r.stage != ends[kind]]
        posts = [r for r in rows if r.optype == optype]
        every = [r for r in rows if r.optype == direction]
        if len(posts) == len(every) > len(makers):
            makers = every  # some go beyond the last stage in the trace: a later one is missing
        if len(posts) != len(makers):
            unknown.append(
                Doubt(
                    About.TRANSFERS,
                    f"{len(posts)} times {optype} where {len(makers)} were expected, so "
                    "which tensor each carried cannot be told",
                )
            )
            continue
        for maker, post in zip(makers, posts, strict=True):
            action = Action(kind, maker.chunk * pp + maker.stage, maker.microbatch)
            found.append(HalfTransfer(action, post.start, post.start, post.end, True))
    return found, unknown


def _busy(rows: Sequence[Row], begin: int, finish: int) -> Busy:
    work = union((r.start, r.end) for r in rows if r.optype in COMPUTE or r.optype == "optimizer")
    talk = union((r.start, r.end) for r in rows if r.optype in TRANSFERS | HEAD | TAIL)
    working, talking = length(work), outside(talk, work)
    return Busy(working, talking, finish - begin - working - talking)
