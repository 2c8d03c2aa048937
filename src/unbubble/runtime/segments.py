"""Segments: a rank's live records in files that a kill at any moment leaves readable.

Every record is one write of one line (see `unbubble.trace.live`), handed to the system before the
training goes on; a killed process loses nothing, a machine that loses power the last seconds.
A file that is full is followed by the next one, and the oldest of the rank go.
"""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from unbubble.errors import InputError
from unbubble.trace.live import SUFFIX, Order, Run, Step, encode


class Segments:
    """Where one rank's steps go. `keep` files of about `max_bytes` stay in the folder."""

    def __init__(self, folder: str | Path, run: Run, *, max_bytes: int, keep: int):
        if max_bytes < 1 or keep < 2:
            raise InputError(
                f"max_bytes {max_bytes} and keep {keep}: a file holds a byte, and two files stay"
            )
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run = run
        self._max_bytes = max_bytes
        self._keep = keep
        self._orders: dict[tuple[str, ...], int] = {}
        self._number = self._bytes = 0
        self._file = -1
        self._open()

    def write(self, actions: Sequence[str], step: Step) -> None:
        """Append a step; `actions` name its columns, `step.order` is filled in.

        A training does not stop for its records: a disk that is full is warned of, once.
        """
        if self._file < 0:
            return
        try:
            if self._bytes >= self._max_bytes:
                self._open()
            key = tuple(actions)
            number = self._orders.get(key)
            if number is None:
                number = self._orders[key] = len(self._orders)
                self._append(encode(Order(order=number, actions=list(key))))
            step.order = number
            self._append(encode(step))
        except OSError as error:
            self.close()
            warnings.warn(
                f"{self.folder}: {error.strerror}; steps are no longer recorded",
                RuntimeWarning,
                stacklevel=2,
            )

    def close(self) -> None:
        """Nothing is written from here on."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self.close()
        path = self.folder / (f"{self.run.run}-rank{self.run.rank}-{self._number:06d}{SUFFIX}")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        self._append(encode(self.run))
        self._number += 1
        self._bytes = 0
        self._orders.clear()
        mine = sorted(self.folder.glob(f"*-rank{self.run.rank}-*{SUFFIX}"))
        for old in mine[: -self._keep]:
            old.unlink(missing_ok=True)

    def _append(self, line: bytes) -> None:
        self._bytes += len(line)
        while line:
            line = line[os.write(self._file, line) :]
