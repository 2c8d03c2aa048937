"""unbubble watch: lines, JSON, metrics."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from tests.records import lines, write

from unbubble.cli import invoke
from unbubble.trace.live import Run, encode


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "steps").mkdir()
    for rank in range(2):
        write(tmp_path / "steps", rank, lines(rank, [7, 8]))
    return tmp_path / "steps"


def test_a_line_a_step(unbubble, folder):
    result = unbubble("watch --once --price 36", folder)
    assert result.status == 0
    first, second = result.out.splitlines()
    assert first.startswith("step 7  190 µs  idle ")
    assert "slowest rank 5  idle cost 3." in second


def test_that_there_is_no_step_is_said(unbubble, folder, tmp_path):
    """An empty folder and a rank that wrote nothing were answered with nothing."""
    (tmp_path / "empty").mkdir()
    result = unbubble("watch --once --json", tmp_path / "empty")
    assert (result.status, result.out) == (0, "")
    assert "empty: no step is there yet" in result.err
    assert unbubble("watch --once", folder).err == ""
    gone = sorted(folder.iterdir())[-1]
    gone.unlink()
    assert "no step is complete: nothing of rank 5 is there" in unbubble("watch --once", folder).err


def test_an_object_a_step(unbubble, folder):
    result = unbubble("watch --once --json", folder)
    assert [json.loads(line)["step"] for line in result.out.splitlines()] == [7, 8]


def test_a_text_file_for_node_exporter(unbubble, folder, tmp_path):
    assert unbubble(f"watch --once --textfile {tmp_path}/steps.prom", folder).status == 0
    assert 'unbubble_step{pipeline="4"} 8.0' in (tmp_path / "steps.prom").read_text()


def test_a_text_file_that_cannot_be_is_named(refused, folder, tmp_path):
    """The name of the file beside it, which the user never gave, was told."""
    assert refused("watch --once --textfile", tmp_path, folder) == (
        f"unbubble: {tmp_path}: Is a directory\n"
    )


def test_alert_rules(unbubble):
    assert "alert: BubbleLarge" in unbubble("watch --alerts").out


def test_damage_is_told_apart_from_what_is_known(unbubble, folder):
    found = lines(1, [7, 8])
    write(folder, 1, [*found[:2], found[2].replace(b"7", b"6", 1), found[3]])
    result = unbubble("watch --once", folder)
    assert [line.split()[1] for line in result.out.splitlines()] == ["8"]
    assert "ignored: " in result.err
    assert "1 damaged records" in result.err


def test_what_is_wrong_is_named(refused, folder):
    assert "no such folder" in refused("watch --once nowhere")
    assert "name the folder" in refused("watch")
    assert "--price" in refused("watch --once --price much", folder)


def test_a_port_that_is_taken_is_named(refused, folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        reason = refused(f"watch --once --port {port}", folder)
    assert f"--port {port}: something listens there already (on 127.0.0.1)" in reason
    assert "give another port" in reason


def test_an_address_of_another_machine_is_named(refused, folder):
    for address in ("192.0.2.1", "no address"):  # the first is kept for documentation
        reason = refused("watch --once --port 9109 --address", address, folder)
        assert f"--address {address}: " in reason
        assert "give an address of this machine" in reason


def test_it_goes_on_and_serves_until_it_is_interrupted(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "unbubble", "watch", str(folder), "--interval", "0.05",
               "--json", "--port", str(port)]  # fmt: skip
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert [json.loads(watch.stdout.readline())["step"] for _ in range(2)] == [7, 8]
        for rank in range(2):
            write(folder, rank, lines(rank, [9]), "a-rank{}-1.live.jsonl")
        assert json.loads(watch.stdout.readline())["step"] == 9
        wanted = b'unbubble_step{pipeline="4"} 9.0'
        deadline = time.monotonic() + 20
        while wanted not in (page := scrape(port)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert wanted in page
        watch.send_signal(2)
        assert watch.wait(20) == 130
        assert watch.stderr.read().strip() == "unbubble: interrupted"
    finally:
        watch.kill()
        watch.communicate()


def scrape(port):
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()


def test_pipelines_of_a_job_are_told_apart(unbubble, folder):
    for rank in range(2):
        _, *others = lines(rank, [7])
        moved = Run(
            run="a", rank=rank, world_size=8, pipeline_ranks=[0, 1], host="here", epoch_ns=0
        )
        write(folder, rank, [encode(moved), *others], "a-rank{}-9.live.jsonl")
    out = unbubble("watch --once", folder).out
    assert [line[:18] for line in out.splitlines()] == [
        "pipeline 0  step 7", "pipeline 4  step 7", "pipeline 4  step 8",
    ]  # fmt: skip


def test_a_folder_that_goes_is_told(folder, capsys, monkeypatch):
    """The watch went on without a word."""

    def sleep(seconds):
        if not folder.exists():
            raise KeyboardInterrupt
        shutil.rmtree(folder)

    monkeypatch.setattr(time, "sleep", sleep)
    assert invoke(["watch", str(folder)]) == 130
    said = " ".join(capsys.readouterr().err.split())
    told = f"{folder}: gone; steps are told once it is there again"
    assert said == f"{told} unbubble: interrupted"
