"""Events of Chrome-style trace files (PyTorch's profiler and its kin), decoded block by block.

A file is an object with a list under `traceEvents`, or the bare list; plain or gzip. Blocks of
half a MB are cut at event boundaries, decoded into typed events, and handed on, so that a file
larger than memory passes through.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from math import nan
from pathlib import Path
from typing import IO, Any

import msgspec

from unbubble.errors import InputError, some

BLOCK_BYTES = 1 << 19
MAX_HEAD_BYTES = 64 << 20
MAX_CLOSINGS = 200
"""How many `}]` of the last block are tried as the list's end; the others stand inside events."""
_LIST = re.compile(rb'"traceEvents"\s*:\s*(\[|null)')
_KEY_BYTES = 1 << 16
"""The list's key and bracket, blanks between them included, are not longer."""
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_CLOSING = re.compile(rb"\}\s*\]")
_EMPTY = re.compile(rb"\s*\]")


class Args(msgspec.Struct, gc=False, rename={
    "external": "External id", "collective": "Collective name", "group": "Process Group Name",
    "ranks": "Process Group Ranks", "size": "Group size", "sequence": "Sequence number",
    "forward_thread": "Fwd thread id", "source": "Src Rank", "destination": "Dst Rank",
}):  # fmt: skip
    """The few arguments that are looked at, of any type: files are not trusted."""

    correlation: Any = None
    stream: Any = None
    external: Any = None
    sequence: Any = None
    forward_thread: Any = None
    collective: Any = None
    group: Any = None
    ranks: Any = None
    size: Any = None
    source: Any = None
    destination: Any = None
    iteration: Any = None
    microbatch: Any = None
    model_chunk: Any = None
    pp_rank: Any = None
    dp_rk: Any = None
    pp_rk: Any = None
    tp_rk: Any = None
    micro_batch_index: Any = None
    data: Any = None


class Event(msgspec.Struct, gc=False):
    """One event; `ts` and `dur` in microseconds, not a number where they are absent."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = nan
    dur: float = nan
    pid: Any = None
    tid: Any = None
    id: Any = None
    args: Args | None = None


_events = msgspec.json.Decoder(list[Event])
_head = msgspec.json.Decoder(dict[str, Any])


class EventFile:
    """A trace file being read: iterate over `blocks`, then `head` holds the rest of the object."""

    def __init__(self, path: str | Path):
        self.path = str(path)
        self.head: dict[str, Any] = {}
        self.count = 0

    def blocks(self) -> Iterator[list[Event]]:
        """Lists of events in file order.

        Raises InputError where the file is not such a trace, is cut off or is damaged.
        """
        try:
            with open_plain(self.path) as file:
                yield from self._blocks(file)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(
                f"{self.path}: the gzip stream is damaged or cut off after {self.count} events "
                f"({error}); copy the file again"
            ) from None
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}") from None

    def _blocks(self, file: IO[bytes]) -> Iterator[list[Event]]:
        prefix, rest = self._open_list(file)
        wanted = BLOCK_BYTES
        while True:
            more = file.read(wanted)
            rest += more
            if not more:
                break
            cut = _last_boundary(rest)
            events = self._decode(rest[: cut + 1]) if cut >= 0 else None
            if events is None:
                wanted = min(2 * wanted, 1 << 30)  # the cut was within an event: take more
                continue
            wanted = BLOCK_BYTES
            rest = rest[rest.index(b"{", cut) :]
            yield self._counted(events)
        if self.count == 0 and (empty := _EMPTY.match(rest)):
            self._close(prefix + b"[" + rest[empty.end() - 1 :])
            return
        for found in islice(_CLOSING.finditer(rest), MAX_CLOSINGS):
            closing = found.end() - 1
            events = self._decode(rest[:closing])
            if events is not None:
                self._close(prefix + b"[" + rest[closing:])
                yield self._counted(events)
                return
        self._fail(rest)

    def _open_list(self, file: IO[bytes]) -> tuple[bytes, bytes]:
        """Everything up to the list's bracket, and what was read beyond it."""
        data = file.read(BLOCK_BYTES)
        start = data.lstrip(b"\xef\xbb\xbf \t\r\n")
        if not start:
            raise InputError(f"{self.path}: the file is empty; a trace was expected there")
        if start[:1] == b"[":
            return b"", start[1:]
        if start[:1] != b"{":
            raise InputError(f"{self.path}: not a JSON trace; the file begins with {start[:20]!r}")
        begin = 0
        while (found := _LIST.search(start, begin)) is None:
            more = file.read(BLOCK_BYTES) if len(start) < MAX_HEAD_BYTES else b""
            if not more:
                raise InputError(f"{self.path}: no list of traceEvents; {_keys(start)}")
            begin = max(len(start) - _KEY_BYTES, 0)
            start += more
        if found[1] == b"null":
            raise InputError(f"{self.path}: traceEvents is null; the profiler recorded nothing")
        return start[: found.end() - 1], start[found.end() :]

    def _decode(self, block: bytes) -> list[Event] | None:
        try:
            return _events.decode(b"[" + block + b"]")
        except msgspec.ValidationError as error:
            raise InputError(f"{self.path}: {self._where(str(error))}") from None
        except (msgspec.DecodeError, RecursionError):
            return None

    def _where(self, message: str) -> str:
        """msgspec's message with the position in the block made one in the file."""
        return re.sub(r"\$\[(\d+)\]", lambda m: f"traceEvents[{self.count + int(m[1])}]", message)

    def _counted(self, events: list[Event]) -> list[Event]:
        self.count += len(events)
        return events

    def _close(self, text: bytes) -> None:
        if text.startswith(b"["):
            if text[2:].strip():
                raise InputError(f"{self.path}: something follows the list of events")
            return
        try:
            self.head = _head.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"{self.path}: damaged around its list of events: {error}") from None

    def _fail(self, rest: bytes) -> None:
        try:
            _events.decode(b"[" + rest)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(
                f"{self.path}: damaged or cut off after {self.count} readable events: "
                f"{self._where(str(error))}"
            ) from None
        raise InputError(f"{self.path}: damaged after {self.count} readable events")


def begins_list(text: bytes) -> bool:
    """Whether a list of traceEvents begins in it."""
    return _LIST.search(text) is not None


def holds_events(path: str | Path) -> bool:
    """Whether it does in an object's file, as far as that is searched; a damaged gzip may."""
    start = b""
    try:
        with open_plain(path) as file:
            while len(start) < MAX_HEAD_BYTES and (more := file.read(BLOCK_BYTES)):
                begin = max(len(start) - _KEY_BYTES, 0)
                start += more
                if _LIST.search(start, begin):
                    return True
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return True
    return False


def _last_boundary(data: bytes) -> int:
    """The position of the last `}` that stands between two objects of a list, or −1."""
    cut = len(data)
    for _ in range(1000):
        cut = data.rfind(b"}", 0, cut)
        if cut < 0 or _BETWEEN.match(data, cut):
            return cut
    return -1


def _keys(start: bytes) -> str:
    """What was found instead, for people."""
    keys = re.findall(rb'"([\w .-]{1,40})"\s*:', start[:4096])
    shown = some(dict.fromkeys(key.decode() for key in keys))
    return f"the file holds the keys {shown}" if shown else "no key was found in the file"


@contextmanager
def open_plain(path: str | Path) -> Iterator[IO[bytes]]:
    """A file's bytes, gzip undone."""
    with open(path, "rb") as file:
        if file.peek(2)[:2] == b"\x1f\x8b":
            with gzip.open(file) as plain:
                yield plain  # type: ignore[misc]
        else:
            yield file
