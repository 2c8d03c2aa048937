"""Sources: the files behind the paths that a user gives, and the format of each by its content."""

import gzip
import re
import zlib
from collections.abc import Iterable
from glob import glob
from pathlib import Path

from unbubble.errors import InputError, some
from unbubble.trace.events import begins_list, holds_events

HEAD_BYTES = 1 << 18
KINETO, MEGASCAN, BYTEDANCE, PRIMUS, NSYS, RECORDING, LIVE = (
    "kineto", "megascan", "bytedance", "primus", "nsys", "recording", "live",
)  # fmt: skip
KNOWN = (
    "PyTorch profiler JSON (plain or gzip), MegaScan JSON, ByteDance parquet or CSV, Primus JSON, "
    "Nsight Systems SQLite, recordings and live records of unbubble"
)


class OtherKind(InputError):  # noqa: N818
    """A file that looked like a trace and is something else; in a folder it is left out."""


def expand(paths: Iterable[str | Path]) -> tuple[list[Path], bool]:
    """The files of paths, folders and patterns, in the order of their names; and whether all were
    named one by one."""
    files: dict[Path, None] = {}
    exact = True
    for given in map(str, paths):
        path = Path(given)
        if "\0" in given:
            raise InputError(f"{given!r} is not a path: it holds a null byte")
        try:
            if path.is_dir():
                exact = False
                found = [p for p in path.iterdir() if p.is_file() and p.name[0] != "."]
                if not found:
                    raise InputError(f"{given}: the folder holds no file; a trace was expected")
            elif path.is_file():
                found = [path]
            elif path.exists():
                raise InputError(f"{given}: neither a file nor a folder, and a trace is read twice")
            else:
                exact = False
                found = [p for p in map(Path, glob(given, recursive=True)) if p.is_file()]
                if not found:
                    raise InputError(f"{given}: no such file, folder or pattern of files")
        except InputError:
            raise
        except ValueError as error:  # no file system can hold such a name
            raise InputError(f"{given!r} is not a path: {error}") from None
        files |= dict.fromkeys(found)
    if not files:
        raise InputError("no trace was given")
    return sorted(files, key=_in_order), exact


def format_of(path: Path) -> tuple[str | None, str]:
    """The format of a file, or None; and what was found in it, in words."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
            if head[:2] == b"\x1f\x8b":
                file.seek(0)
                head = _gzip_head(file.read(HEAD_BYTES))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if head[:4] == b"PAR1":
        return _table(path)
    if head[:16] == b"SQLite format 3\0":
        return _database(path)
    if not head.strip():
        return None, "nothing: the file is empty"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] not in (b"{", b"["):
        if path.suffix == ".nsys-rep":
            return None, (
                "an Nsight Systems report, which only its own tool opens; make it SQLite with "
                "`nsys export --type sqlite`"
            )
        columns = text.split(b"\n", 1)[0]
        if b"optype" in columns and b"start_ts" in columns:
            return BYTEDANCE, "a table of operations"
        return None, f"bytes that begin with {text[:16]!r}"
    if b'"unbubble_recording"' in text[:4096]:
        return RECORDING, "a recording"
    if text[:2] == b'["' and b'"unbubble_live"' in text[:4096]:
        return LIVE, "live records"
    if b'"fwd_start"' in text and b'"traceEvents"' not in text:
        return PRIMUS, "fwd_start and the like"
    # its list may begin late, behind what the job says of itself
    late = text[:1] == b"{" and len(head) >= HEAD_BYTES
    if begins_list(text) or (late and holds_events(path)):
        return KINETO, "traceEvents"
    if text[:1] == b"[" and b'"ph"' in text and re.search(rb'"pp_(rank|rk)"', text):
        return MEGASCAN, "events with pp_rank or pp_rk"
    keys = dict.fromkeys(re.findall(rb'"([\w .-]{1,40})"\s*:', text[:4096]))
    if b"unbubble_plan" in keys:
        return None, "a plan"
    if b"forward" in keys and (b"stages" in keys or b"layers" in keys):
        return None, "a costs file"
    shown = some(key.decode(errors="replace") for key in keys)
    what = "an object" if text[:1] == b"{" else "a list"
    return None, f"JSON, {what} with the keys {shown}" if shown else f"JSON, {what} without keys"


def _database(path: Path) -> tuple[str | None, str]:
    """Which SQLite it is; a damaged one is the reader's to name."""
    from unbubble.trace.nsys import is_export, tables_of

    tables = tables_of(path)
    if tables is None or is_export(tables):
        return NSYS, "SQLite"
    return None, f"SQLite with the tables {some(tables)}" if tables else "SQLite without a table"


def _table(path: Path) -> tuple[str | None, str]:
    """Which parquet it is; a damaged one, and one for want of pyarrow, is the reader's to name."""
    from unbubble.trace.bytedance import columns_of

    columns = columns_of(path)
    if columns is None or "optype" in columns:
        return BYTEDANCE, "parquet"
    return None, f"parquet with the columns {some(columns)}"


def _gzip_head(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, HEAD_BYTES)
    except (zlib.error, gzip.BadGzipFile):
        return b""


_RANK = re.compile(r"rank[_-]?([0-9]{1,9})", re.IGNORECASE)


def _in_order(path: Path) -> list[tuple[int, str]]:
    """A key for names in which a number counts as one: `node10` comes after `node9`."""
    return [(int(part), "") if part.isdecimal() else (-1, part)
            for part in re.split("([0-9]{1,18})", str(path))]  # fmt: skip


def rank_in_name(path: str | Path) -> int | None:
    """The rank that a file's name gives, as in rank3.json or trace_rank_3_step_5.json."""
    found = _RANK.findall(Path(path).name)
    return int(found[-1]) if found else None
