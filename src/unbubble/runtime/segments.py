"""Segments: a rank's live records in files that a kill at any moment leaves readable.

Every record is one write of one line (see `unbubble.trace.live`), handed to the system before the
training goes on; a killed process loses nothing, a machine that loses power the last seconds.
A file that is full is followed by the next one, and the oldest of the rank go; what another job
still writes in the same folder stays.
"""

import fcntl
import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from unbubble.errors import FULL, InputError
from unbubble.trace.live import SUFFIX, Order, Run, Step, encode

_STAMP, _STAMP_WIDTH = "%Y%m%dT%H%M%S", 15


def later_run(folder: str | Path) -> str:
    """The name of a new run, which sorts behind those in the folder also where the clock was set
    back: the last one by name is the one that is read, and the first ones go."""
    moment = datetime.now(UTC)
    for path in Path(folder).glob(f"*{SUFFIX}"):
        with suppress(ValueError, OverflowError):  # a run that is named otherwise
            begun = datetime.strptime(path.name[:_STAMP_WIDTH], _STAMP).replace(tzinfo=UTC)
            moment = max(moment, begun + timedelta(seconds=1))
    return f"{moment:{_STAMP}}-{uuid4().hex[:8]}"


class Segments:
    """Where one rank's steps go. `keep` files of about `max_bytes` stay in the folder."""

    def __init__(self, folder: str | Path, run: Run, *, max_bytes: int, keep: int):
        if max_bytes < 1 or keep < 2:
            raise InputError(
                f"max_bytes {max_bytes} and keep {keep}: a file holds a byte, and two files stay"
            )
        self.folder = Path(folder)
        self.run = run
        self._max_bytes = max_bytes
        self._keep = keep
        self._orders: dict[tuple[str, ...], int] = {}
        self._number = self._bytes = 0
        self._file = -1
        try:
            self._open()
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._give_up(error)

    def write(self, actions: Sequence[str], step: Step) -> None:
        """Append a step; `actions` name its columns, `step.order` is filled in.

        A training does not stop for its records: a disk that is full is warned of, once.
        """
        if self._file < 0:
            return
        try:
            # without a name somebody has removed it, perhaps with its folder
            if self._bytes >= self._max_bytes or not os.fstat(self._file).st_nlink:
                self._open()
            key = tuple(actions)
            number = self._orders.get(key)
            if number is None:
                number = len(self._orders)
                self._append(encode(Order(order=number, actions=list(key))))
                self._orders[key] = number  # once it stands there: an interrupt may come between
            step.order = number
            self._append(encode(step))
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.close()
        words = f"{self.folder}: {error.strerror}; steps are no longer recorded"
        warnings.warn(words, RuntimeWarning, stacklevel=3)

    def close(self) -> None:
        """Nothing is written from here on."""
        if self._file >= 0:
            with suppress(OSError):  # not only closed: forked processes of the job have it, too
                fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / (f"{self.run.run}-rank{self.run.rank}-{self._number:06d}{SUFFIX}")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self._append(encode(self.run))
        self._number += 1
        self._bytes = 0
        self._orders.clear()
        before = self.folder.glob(f"*-rank{self.run.rank}-*{SUFFIX}")
        mine = sorted(other for other in before if other <= path)  # of a later run none
        for old in mine[: -self._keep]:
            if not _written(old):
                old.unlink(missing_ok=True)

    def _append(self, line: bytes) -> None:
        self._bytes += len(line)
        while line:
            line = line[os.write(self._file, line) :]


def _written(path: Path) -> bool:
    """Whether a process still writes the file."""
    try:
        file = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(file)
    return False
