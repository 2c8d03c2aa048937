"""Every answer for people within the columns of their terminal."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from tests.cli.examples import EXAMPLES, lay_out

DATA = {"schedule export zb-v -p 4 -m 8", "watch --alerts"}
"""Files for programs, on standard output."""
COPIED = re.compile(r"(deepspeed|megatron|mindformers): ")
"""Lines in the words of a framework stay in one piece, so that they can be copied."""
SLOW = ("profile", "run", "demo")
CALLS = [
    f"{command} {rest}".strip()
    for command, more in EXAMPLES.items()
    if command not in SLOW
    for rest in more
]


@pytest.fixture
def laid_out(tmp_path, monkeypatch):
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)


def assert_fits(out, width):
    lines = [line for line in out.splitlines() if not COPIED.match(line)]
    assert lines
    assert [line for line in lines if len(line) > width] == []


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("call", [call for call in CALLS if call not in DATA])
def test_answers_fit(unbubble, laid_out, monkeypatch, call, width):
    """`watch` had lines of 149 columns, `validate fixed-orders` of 86, sentences up to 260."""
    monkeypatch.setenv("COLUMNS", str(width))
    result = unbubble(call)
    assert result.err == ""
    assert_fits(result.out, width)


@pytest.mark.parametrize("command", ["profile", "run"])
def test_answers_of_real_runs_fit(unbubble, laid_out, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "60")
    (call,) = EXAMPLES[command]
    assert_fits(unbubble(f"{command} {call}").out, 60)


@pytest.mark.parametrize("call", ["validate fixed-orders", "schedule list", "compare -p 4 -m 8"])
def test_in_a_terminal(call):
    """What is seen there, with its colours taken out."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-m", "unbubble", *call.split()], stdout=child, env=environment
    ) as process:
        os.close(child)
        seen = b""
        while part := _read(parent):
            seen += part
    os.close(parent)
    assert process.returncode == 0
    assert_fits(re.sub("\x1b\\[[0-9;]*m", "", seen.decode()), 60)


def _read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end was closed
        return b""


def test_a_pipe_gets_whole_lines(unbubble):
    assert (
        "arXiv 2412.19437"
        in unbubble("bubble -p 4 -m 8 --schedule dualpipe-v").out.splitlines()[-1]
    )


def test_times_are_in_a_unit_that_suits_them(unbubble, tmp_path, monkeypatch):
    """0.0886391 s in every column, so wide that the names of the schedules stood over the rows."""
    monkeypatch.setenv("COLUMNS", "80")
    times = "forward = 1.1234567, backward_input = 1.2345678, backward_weight = 0.9876543"
    row = f"{{{times}, weight_bytes = 123456, held_until_weight_bytes = 65432}}"
    (tmp_path / "costs.toml").write_text(f'unit = "ms"\nlayers = [{", ".join([row] * 9)}]')
    line = f"-p 2 -m 8 --costs {tmp_path}/costs.toml"
    head, *rows = unbubble(f"compare --schedules 1f1b,zb-v {line}").out.splitlines()[:3]
    assert head.startswith("schedule  stages  makespan ms  bubble  span ms")
    assert [row.split()[0] for row in rows] == ["1f1b", "zb-v"]
    assert unbubble(f"compare {line} --json").json["unit"] == "s"
