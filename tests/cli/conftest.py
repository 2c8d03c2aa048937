"""The command line called in this process."""

import json
from typing import NamedTuple

import pytest

from unbubble.cli import invoke


class Result(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self):
        """The answer; nothing else may stand on standard output."""
        assert self.status == 0, self.err
        return json.loads(self.out)


@pytest.fixture
def unbubble(capsys):
    """`unbubble("bubble -p 4 -m 8")` gives status, out and err."""

    def call(line, *more):
        capsys.readouterr()
        status = invoke([*line.split(), *map(str, more)])
        return Result(status, *capsys.readouterr())

    return call


@pytest.fixture
def refused(unbubble):
    """`refused("bubble -p 0 -m 8")` gives the message of a call that ends with status 2."""

    def call(line, *more):
        result = unbubble(line, *more)
        assert result.status == 2, result
        assert result.out == ""
        assert result.err.startswith("unbubble: ")
        assert result.err.count("\n") == 1
        return result.err

    return call


@pytest.fixture(autouse=True)
def no_columns(monkeypatch):
    """Answers as a pipe gets them, whatever terminal the tests run in."""
    monkeypatch.delenv("COLUMNS", raising=False)
