"""The command line as a process of its own: exit status, standard error, signals, pipes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from unbubble.cli import cli, invoke

COMMAND = [sys.executable, "-m", "unbubble"]


def call(*args):
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=60)


def test_an_answer_and_nothing_else():
    done = call("bubble", "-p", "8", "-m", "64", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["microbatches"] == 64


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["bubble", "-p", "0", "-m", "8"], "-p (ranks) is 0; it is at least 1"),
        (["simulate", "--csv", "none.csv"], "none.csv: No such file or directory"),
        (["partition", "--layers", "3", "-p", "4"], "4 stages need at least 4 layers"),
        (["bubbel"], "No such command 'bubbel'"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(args, message):
    done = call(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_and_version():
    assert call("--version").stdout.startswith("unbubble, version ")
    out = call("--help").stdout
    for command in ("bubble", "simulate", "compare", "partition"):
        assert f"  {command} " in out
    assert call().returncode == 2


def test_a_terminal_without_the_signs_shows_what_it_can():
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(
        [*COMMAND, "bubble", "-p", "4", "-m", "8"], capture_output=True, env=environment, timeout=60
    )
    assert done.returncode == 0
    assert b"idle / total work = (p?1)/m = 3/8" in done.stdout


def test_nobody_needs_to_listen(tmp_path):
    """With standard output closed Python has none, and flushing it was an internal error."""
    plan = tmp_path / "plan.json"
    line = [*COMMAND, "partition", "--layers", "8", "-p", "2", "-m", "4", "-o", str(plan)]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *line], stderr=subprocess.PIPE, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(plan.read_text())


def test_a_file_may_be_the_pipe_that_reads_us():
    """The link /dev/stdout was followed to the name pipe:[…], which is none."""
    done = call("schedule", "export", "1f1b", "-p", "2", "-m", "1", "-o", "/dev/stdout")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("0F0,0B0\n1F0,1B0\n")


def test_many_ranks_take_no_more_than_their_share():
    """20,000 ranks took half a minute: the stages of each were counted over all of them."""
    rows = "".join(f"{stage}F0,{stage}B0\n" for stage in range(20_000))
    done = subprocess.run(
        [*COMMAND, "simulate", "--csv", "/dev/stdin", "--json"],
        input=rows, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert json.loads(done.stdout)["makespan"] == 60_000


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_a_failure(unbuffered):
    """What was still buffered failed again as the interpreter ended, and its status 120 won."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "bubble", "-p", "4", "-m", "8"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr == b"unbubble: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_no_error(unbuffered):
    args = ["schedule", "show", "gpipe", "-p", "8", "-m", "20000", "--json"]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(
        [*COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read()
    assert errors == b""
    assert process.returncode in (0, 1)


def test_an_interrupt_ends_with_130():
    args = ["partition", "--layers", "3000", "-p", "64", "--objective", "makespan"]
    with subprocess.Popen([*COMMAND, *args], stderr=subprocess.PIPE, text=True) as process:
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
    assert process.returncode == 130
    assert errors.strip() == "unbubble: interrupted"


def test_an_interrupt_while_a_class_is_made(monkeypatch, capsys):
    """It was an internal error, RuntimeError: Error calling __set_name__, with status 1."""

    class Interrupted:
        def __set_name__(self, owner, name):
            raise KeyboardInterrupt

    def making(*args, **kwargs):
        try:  # what CPython 3.11 raises in its place
            type("Made", (), {"attribute": Interrupted()})
        except KeyboardInterrupt as error:
            raise RuntimeError("Error calling __set_name__ on 'Interrupted'") from error

    monkeypatch.setattr(cli, "main", making)
    assert invoke(["bubble"]) == 130
    assert capsys.readouterr().err == "unbubble: interrupted\n"


def test_a_file_that_may_grow_no_further_is_a_failure(tmp_path):
    """Behind `ulimit -f` the input was to blame."""
    args = ["simulate", "--schedule", "1f1b", "-p", "8", "-m", "64", "--html", str(tmp_path / "a")]
    limited = ["sh", "-c", 'ulimit -f 8; "$@"', "sh", *COMMAND, *args]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"unbubble: {tmp_path}/a: File too large\n")
    assert os.listdir(tmp_path) == []


def test_an_interrupt_while_the_command_line_is_loaded(tmp_path):
    """It was a traceback through the imports."""
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [*COMMAND, "--version"], capture_output=True, env=os.environ | {"PYTHONPATH": path},
        timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, b"unbubble: interrupted\n")
