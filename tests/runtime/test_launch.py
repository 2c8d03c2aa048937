"""A job ends within seconds whatever its processes do, says why, and leaves nobody behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from unbubble import InputError, RunError, Schedule
from unbubble.runtime import launch as launch_module
from unbubble.runtime.launch import Job, crowding, launch
from unbubble.runtime.run import Setup, run

ORDER = Schedule.of([["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]], name="1f1b")


def run_bad(model, **options):
    options = {"steps": 3, "warmup": 0, "verify": False, "timeout_s": 60} | options
    return run([Setup(ORDER, [1, 1])], f"bad_models:{model}", **options)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("killed", "rank 1 was lost: killed by SIGKILL"),
        ("raising", "rank 1 failed: in 1F1: ValueError: no such luck"),
        ("leaving", "rank 1 was lost: exit status 7"),
        # rank 0 was blamed, as a status of 0 looked like a process that had done its part
        ("leaving_in_peace", "rank 1 was lost: exit status 0"),
        # it waited for an answer for ever: the input was the pipe to the parent
        ("asking", r"rank \d failed: EOFError"),
        # all processes ended well and the result was missing
        ("exiting", r"rank \d failed: SystemExit: 0"),
    ],
)
def test_a_lost_rank_ends_the_run_and_is_named(model, message, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    begin = time.monotonic()
    with pytest.raises(RunError, match=message):
        run_bad(model, timeout_s=280)
    assert time.monotonic() - begin < 200  # it starts torch, a minute on a busy machine
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_hangs_is_not_waited_for_longer_than_the_timeout():
    with pytest.raises(RunError, match=r"rank 0 failed: in 0B\d: .*[Tt]imed out"):
        run_bad("hanging", timeout_s=8)


def test_a_model_that_cannot_be_run_is_the_users_to_fix():
    """The third layer was left out, and the gradients compared were those of another model."""
    with pytest.raises(InputError, match="layers_per_stage holds 2 layers and the model has 3"):
        run_bad("of_three_layers")


def test_gradients_that_the_model_changes_by_itself_are_not_blamed_on_the_schedule():
    (measured,) = run_bad("with_a_sum", verify=True)
    assert not measured.gradients.equal
    assert measured.gradients.of_model
    assert "the loss is a sum over the samples" in measured.gradients.blame


def test_a_model_that_is_another_on_every_rank_is_not_the_schedules_fault():
    """It reseeds itself by its process, and the schedule was said not to train the same model."""
    (measured,) = run_bad("of_another_seed", verify=True)
    assert measured.gradients.apart == ["parameters"]
    assert "parameters are not the same on every rank" in measured.gradients.blame


def test_a_loss_of_no_single_number_is_the_users_to_fix():
    """PyTorch's own sentence about grads was told, as a failure of the rank."""
    with pytest.raises(InputError, match=r"loss returned a tensor of shape \(4,\); it must"):
        run_bad("loss_of_samples")


def test_parameters_may_lie_in_memory_as_they_like():
    """gloo sends what is contiguous, and the run failed."""
    (measured,) = run_bad("transposed", verify=True)
    assert measured.gradients.equal


def test_losses_that_are_no_numbers_are_none():
    """They ended the command with an internal error: JSON has no NaN."""
    (measured,) = run_bad("without_numbers", verify=True)
    assert measured.losses == (None,) * 3
    assert measured.gradients.largest_difference is None
    assert not measured.gradients.equal
    assert measured.gradients.of_model


@pytest.mark.parametrize("endings", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 5])
def test_an_interrupt_ends_the_processes(tmp_path, endings):
    """A second interrupt, and a SIGTERM, left the job's folder behind."""
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    command = [sys.executable, "-m", "unbubble", "demo", "-o", str(tmp_path / "demo")]
    parent = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(jobs)},
    )
    try:
        children = wait_for(lambda: children_of(parent.pid), 2)
        for ending in endings:
            parent.send_signal(ending)
            time.sleep(0.02)
        _, said = parent.communicate(timeout=20)
        assert parent.returncode == 130
        # the demo said where that was which it had not found yet
        assert said.decode().strip() == "unbubble: interrupted"
        assert not any(map(alive, children))
        assert list(jobs.iterdir()) == []
    finally:
        parent.kill()


def test_processes_end_with_a_parent_that_is_killed():
    program = (
        "from unbubble.runtime.launch import Job, launch\n"
        "launch(Job(task='time:sleep', argument=60, processes=1), print)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    children = wait_for(lambda: children_of(parent.pid), 1)
    parent.kill()
    parent.wait(10)
    wait_for(lambda: [0] if not any(map(alive, children)) else [], 1)


def test_only_as_many_processes_as_torchrun_started_are_used(monkeypatch):
    for key, value in {
        "RANK": "0",
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "x",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(InputError, match="torchrun started 3 processes and 2 are needed"):
        launch(Job(task="time:sleep", argument=0, processes=2))


def wait_for(found, count, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if len(result := found()) >= count:
            return result
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def children_of(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    ("ranks", "cores", "said"),
    [
        (4, {0, 3}, "4 ranks share 2 cores; the prediction is for a core each"),
        (2, {5}, "2 ranks share 1 core; the prediction is for a core each"),
        (2, {0, 3}, None),
    ],
)
def test_ranks_without_a_core_each_are_told(monkeypatch, ranks, cores, said):
    """A step five times as long as predicted was put down to a machine busy with something else."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores, raising=False)
    assert crowding(ranks) == said
    monkeypatch.setattr(launch_module, "inside_torchrun", lambda: True)  # the cores of other hosts
    assert crowding(ranks) is None
