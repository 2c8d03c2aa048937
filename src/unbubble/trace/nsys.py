"""Nsight Systems, exported to SQLite: kernels, copies, launches and NVTX of every process.

Tables and columns differ between versions; what is there is used. A process is a rank, in the
order of the devices. PyTorch's ranges are in NVTX under `torch.autograd.profiler.emit_nvtx`, with
`, op_id = …` behind their names; one's own `nvtx.range_push` is read as well.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from unbubble.errors import InputError, some
from unbubble.trace.marks import Mark
from unbubble.trace.names import COLLECTIVE, COMPUTE, kernel_kind
from unbubble.trace.observed import RankSteps
from unbubble.trace.profiled import observe
from unbubble.trace.rank_trace import RankTrace
from unbubble.trace.sources import rank_in_name

PUSH_POP, START_END = 59, 60
PROCESS_MASK = ~0xFFFFFF
"""A global thread id is its process's id and 24 bits of the thread."""
PEER_TO_PEER = 10
"""A copy between devices."""
MAX_NS = 1 << 62
_SUFFIX = re.compile(r", (?:op_id|seq|sizes|input_op_ids) = .*", re.DOTALL)
_NCCL = re.compile(r"nccl(Send|Recv)\b")


_TABLES = {"NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL"}


def tables_of(source: str | Path) -> list[str] | None:
    """The names of a SQLite file's tables, or None where it cannot be read."""
    try:
        with closing(_opened(source)) as database:
            return sorted(map(str, _names(database)))
    except (sqlite3.Error, OverflowError, UnicodeDecodeError):
        return None


def is_export(tables: Iterable[str]) -> bool:
    """Whether these are the tables of an export of Nsight Systems."""
    return not _TABLES.isdisjoint(tables)


def _opened(source: str | Path) -> sqlite3.Connection:
    uri = f"file:{quote(str(Path(source).absolute()))}?mode=ro&immutable=1"
    return sqlite3.connect(uri, uri=True)


def _names(database: sqlite3.Connection) -> set[Any]:
    found = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
    return {name for (name,) in found}


def read(source: str) -> list[RankSteps]:
    """Every process of the file that used a device, or that has ranges if none did.

    Raises InputError for what is no such file.
    """
    try:
        with closing(_opened(source)) as database:
            traces = _Export(source, database).traces()
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise InputError(f"{source}: not a readable SQLite file: {error}") from None
    if len(traces) == 1:
        known = rank_in_name(source)
        steps = tuple(observe(traces[0], window, known or 0) for window in traces[0].windows)
        return [RankSteps(rank=known, source=source, steps=steps)]
    note = "ranks, from the order of the processes' devices"
    return [
        RankSteps(
            rank=None,
            source=trace.source,
            steps=tuple(
                replace(step, recovered=(*step.recovered, note))
                for step in (observe(trace, window, rank) for window in trace.windows)
            ),
        )
        for rank, trace in enumerate(traces)
    ]


class _Export:
    """The tables that are there."""

    def __init__(self, source: str, database: sqlite3.Connection):
        self.source = source
        self.database = database
        self.tables = _names(database)
        if not is_export(self.tables):
            raise InputError(
                f"{source}: SQLite, but not an export of Nsight Systems; its tables are "
                f"{some(sorted(map(str, self.tables))) or 'none'}"
            )
        self.strings: dict[int, str] = {}
        if "StringIds" in self.tables:
            self.strings = {
                i: value for i, value in self.rows("StringIds", ("id", "value"))
                if isinstance(value, str)
            }  # fmt: skip

    def rows(self, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """A table's columns, None for those that this version has not."""
        if table not in self.tables:
            return
        known = {row[1] for row in self.database.execute(f'PRAGMA table_info("{table}")')}
        shown = ", ".join(f'"{c}"' if c in known else "NULL" for c in columns)
        yield from self.database.execute(f'SELECT {shown} FROM "{table}"')

    def traces(self) -> list[RankTrace]:
        """One a process, by the devices that they use."""
        traces: dict[int, RankTrace] = {}
        devices: dict[int, int] = {}

        def trace_of(process: int) -> RankTrace:
            if process not in traces:
                traces[process] = RankTrace(f"{self.source} (process {len(traces)})")
                traces[process].host = self.source
            return traces[process]

        launches = list(self.launches())
        launching = {process for process, _, _ in launches}
        for known, device, kernel, named in self.kernels():
            if known is None and len(launching) > 1:
                raise InputError(
                    f"{self.source}: a kernel has no globalPid and {len(launching)} processes "
                    "launched some, so whose it is cannot be told"
                )
            process = next(iter(launching), 0) if known is None else known
            trace_of(process).launched.append(kernel)
            trace_of(process).unnamed += not named
            devices[process] = min(device, devices.get(process, device))
        for process, correlation, start in launches:
            if process in devices:
                trace_of(process).launches[correlation] = start
        for process, thread, start, end, name in self.ranges():
            if devices and process not in devices:
                continue
            trace = trace_of(process)
            if "::" in name[:16]:
                trace.add_op(thread, start, end, name)
            else:
                if match := _NCCL.match(name):
                    name = f"nccl:{match[1].lower()}"
                trace.marks.append(Mark(start, end, name, thread))
        if not traces:
            raise InputError(f"{self.source}: the export holds no kernel and no range")
        for trace in traces.values():
            trace.finish()
        order = sorted(traces, key=lambda process: (devices.get(process, 1 << 30), process))
        return [traces[process] for process in order]

    def kernels(self) -> Iterator[tuple[int | None, int, tuple[int, int, int, Any], bool]]:
        """Process, device, what a RankTrace keeps of kernels and copies, and whether the name says
        what they are."""
        columns = ("start", "end", "deviceId", "globalPid", "correlationId", "demangledName",
                   "shortName")  # fmt: skip
        for start, end, device, process, correlation, name, short in self.rows(
            "CUPTI_ACTIVITY_KIND_KERNEL", columns
        ):
            self.check(start, end)
            text = self.strings.get(short) or self.strings.get(name) or ""
            kernel = (start, end, kernel_kind(text), correlation)
            yield process, device or 0, kernel, bool(text)
        for table in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"):
            for start, end, device, process, correlation, kind in self.rows(
                table, (*columns[:5], "copyKind")
            ):
                self.check(start, end)
                what = COLLECTIVE if kind == PEER_TO_PEER else COMPUTE
                yield process, device or 0, (start, end, what, correlation), True

    def launches(self) -> Iterator[tuple[int, int, int]]:
        columns = ("start", "globalTid", "correlationId")
        for start, thread, correlation in self.rows("CUPTI_ACTIVITY_KIND_RUNTIME", columns):
            if isinstance(correlation, int) and isinstance(start, int):
                yield (thread or 0) & PROCESS_MASK, correlation, start

    def ranges(self) -> Iterator[tuple[int, int, int, int, str]]:
        """Process, thread, start, end and name of NVTX ranges."""
        columns = ("start", "end", "eventType", "text", "textId", "globalTid")
        for start, end, kind, text, name, thread in sorted(
            (row for row in self.rows("NVTX_EVENTS", columns) if row[0] is not None),
            key=lambda row: (row[0], -(row[1] or 0)),
        ):
            word = text if isinstance(text, str) else self.strings.get(name, "")
            if kind in (PUSH_POP, START_END) and end is not None and word:
                self.check(start, end)
                process = (thread or 0) & PROCESS_MASK
                yield process, thread or 0, start, end, _SUFFIX.sub("", word)

    def check(self, start: Any, end: Any) -> None:
        good = isinstance(start, int) and isinstance(end, int) and -MAX_NS < start <= end < MAX_NS
        if not good:
            raise InputError(f"{self.source}: an event runs from {start!r} to {end!r} ns")
