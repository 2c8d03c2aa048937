"""Files: read whole with one-sentence errors, written beside and renamed, never half-written."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from errno import EISDIR
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any

from unbubble.errors import InputError

MAX_TEXT_BYTES = 1 << 28
"""Larger plan, costs and schedule files are a mistake (a device, a trace), not an input."""


def read_text(path: str | Path, what: str) -> str:
    """The text of a file; `what` says in a few words what it should hold, for the messages.

    Raises InputError where the file is missing, unreadable, too large or not UTF-8.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; {what} was expected there") from None
    except ValueError as error:  # a path with a null byte
        raise InputError(f"{str(path)!r} is not a path: {error}") from None
    if len(data) > MAX_TEXT_BYTES:
        raise InputError(f"{path}: larger than {MAX_TEXT_BYTES >> 20} MiB, so not {what}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8 text, so not {what}") from None


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, all of it or nothing."""
    with replacing(path) as file:
        file.write(text.encode())


def expect_writable(*paths: str | Path | None) -> None:
    """Before long work: raises now what writing its result would raise after it."""
    for path in (one for one in paths if one is not None):
        if os.path.isdir(path):
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
        if _replaceable(path):
            beside = _beside(path)
            beside.close()
            os.unlink(beside.name)


def expect_apart(
    outputs: Mapping[str, str | Path | None], inputs: Iterable[str | Path | None] = ()
) -> None:
    """Before anything is written: no output, by its option, takes the place of another or of a
    file that is read. What is not a regular file may stand for several.

    Raises InputError that names the options.
    """
    read = {_target(path) for path in inputs if path is not None}
    written: dict[Path, str] = {}
    for option, path in outputs.items():
        if path is None or not _replaceable(path):
            continue
        target = _target(path)
        if target in read:
            raise InputError(
                f"{option} {path} would replace a file that this command reads; give another name"
            )
        if other := written.get(target):
            raise InputError(f"{other} and {option} both write {path}; give each a file of its own")
        written[target] = option


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[Any]]:
    """A binary file beside `path` that takes its place when the block ends without an error.

    What is not a regular file (a pipe, /dev/stdout) is written directly. Raises OSError where the
    folder cannot be written, InputError for what is no path.
    """
    if not _replaceable(path):
        with _named(path), open(path, "wb") as direct:
            yield direct
        return
    beside, target = _beside(path), _target(path)
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    try:
        with _named(path), beside:
            yield beside
        os.chmod(beside.name, mode)
        os.replace(beside.name, target)
    except BaseException:
        os.unlink(beside.name)
        raise


@contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """An error that names no file, as of a disk that is full, is of this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None and not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def _replaceable(path: str | Path) -> bool:
    # by its own name: where a link like /dev/stdout leads to a pipe, that has no name
    return os.path.isfile(path) or not os.path.exists(path)


def _target(path: str | Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except ValueError as error:  # a path with a null byte
        raise InputError(f"{str(path)!r} is not a path: {error}") from None


def _beside(path: str | Path) -> IO[bytes]:
    target = _target(path)
    try:
        return NamedTemporaryFile(dir=target.parent, prefix=f".{target.name[:80]}.", delete=False)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
