"""Start the processes of one job on this machine, watch them, and bring back rank 0's result.

A task is `MODULE:FUNCTION`; every rank calls it with the same argument (plain JSON values) inside
an initialised process group. The processes live in a job folder:

    job.json       what to do               result.json   what rank 0 returned
    progress       lines of rank 0          R.error       why rank R failed, in one sentence
    rendezvous     gloo's meeting point     R.log         everything else rank R printed

A lost rank ends the job at once and is named. The processes end when this one does, however it
ends: each watches its standard input, which closes with us.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from unbubble.errors import InputError, RunError

TORCH = "2.13"
POLL_S = 0.05
DONE = 64
"""What a process leaves with that did its part; a model that ends it otherwise is a rank lost."""
GRACE_S = 0.5
"""How long the others may take to say why, once a rank is lost."""

Progress = Callable[[str], None]


class Job(msgspec.Struct, kw_only=True):
    """What the processes do; `argument` holds plain JSON values."""

    task: str
    argument: Any
    processes: int
    timeout_s: float = 120.0


def inside_torchrun() -> bool:
    """Whether torchrun (or the like) started this process as one of many."""
    return all(key in os.environ for key in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def is_main() -> bool:
    """Whether this process speaks for all: every one but the further ranks of a torchrun."""
    return not inside_torchrun() or os.environ["RANK"] == "0"


def crowding(ranks: int) -> str | None:
    """What to say where so many ranks have no core each; None where they do, or nothing tells."""
    if inside_torchrun() or not hasattr(os, "sched_getaffinity"):
        return None
    cores = len(os.sched_getaffinity(0))
    if ranks <= cores:
        return None
    share = "1 core" if cores == 1 else f"{cores} cores"
    return f"{ranks} ranks share {share}; the prediction is for a core each"


def launch(job: Job, on_progress: Progress = lambda line: None) -> Any:
    """Run the job to its end and return rank 0's result, inside a torchrun on every rank.

    Raises RunError that names the rank which was lost or failed, InputError where a rank found the
    input wrong. Nobody is left behind, whatever happens.
    """
    need_torch()
    if inside_torchrun():
        return _join(job, on_progress)
    folder = Path(tempfile.mkdtemp(prefix="unbubble-"))
    children: list[subprocess.Popen[bytes]] = []
    try:
        (folder / "job.json").write_bytes(msgspec.json.encode(job))
        # the processes keep the interrupt blocked, as it is this one that ends them
        with _later(signal.SIGINT):
            for rank in range(job.processes):
                children.append(_start(folder, rank, job.processes))
        _watch(children, folder, on_progress)
        return msgspec.json.decode((folder / "result.json").read_bytes())
    finally:
        with _later(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            _end(children)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _later(*signals: signal.Signals) -> Iterator[None]:
    """Signals wait for the end of the block: one in its middle would leave something behind."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def need_torch() -> None:
    """Raises InputError unless numpy and a torch whose pipelining internals are known are there."""
    try:
        found = version("torch")
    except PackageNotFoundError:
        found = ""
    if not found.startswith(f"{TORCH}."):
        have = f"torch {found} is" if found else "it is not"
        raise InputError(
            f"this needs PyTorch {TORCH} and {have} installed: pip install 'unbubble[torch]'; on "
            f"a machine without a GPU before that pip install torch=={TORCH}.0 "
            "--index-url https://download.pytorch.org/whl/cpu"
        )
    if not find_spec("numpy"):
        raise InputError("torch.distributed needs numpy and it is not installed: pip install numpy")


def _join(job: Job, on_progress: Progress) -> Any:
    """Be one rank of the torchrun that started this process."""
    from unbubble.runtime.process import call, sentence

    world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    if world != job.processes:
        raise InputError(
            f"torchrun started {world} processes and {job.processes} are needed, one a rank; "
            f"use --nproc-per-node {job.processes}"
        )
    try:
        return call(job, "env://", rank, on_progress if rank == 0 else lambda line: None)
    except InputError:
        raise
    except Exception as error:
        raise RunError(f"rank {rank} failed: {sentence(error)}") from None


def _start(folder: Path, rank: int, processes: int) -> "subprocess.Popen[bytes]":
    environment = os.environ | {
        "RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        # glibc: keep freed memory in the process, so that a step pays for no page twice
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "MALLOC_MMAP_MAX_": "0",
    }
    if sys.platform == "linux":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")  # a host's own name may lead nowhere
    with (folder / f"{rank}.log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "unbubble.runtime.process", str(folder)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
    if cores := _cores(rank, processes):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(child.pid, cores)
    return child


def _cores(rank: int, processes: int) -> list[int]:
    """The cores of a rank alone, so that no two ranks share one while another is idle; none where
    there are fewer cores than ranks or the system does not tell."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // processes
    return cores[rank * each : (rank + 1) * each]


def _watch(children: "list[subprocess.Popen[bytes]]", folder: Path, on_progress: Progress) -> None:
    seen = 0
    while True:
        statuses = [child.poll() for child in children]
        lines = _lines(folder / "progress")
        for line in lines[seen:]:
            on_progress(line)
        seen = len(lines)
        if any(status not in (None, DONE) for status in statuses):
            _raise_lost(children, folder)
        if all(status == DONE for status in statuses):
            return
        time.sleep(POLL_S)


def _raise_lost(children: "list[subprocess.Popen[bytes]]", folder: Path) -> None:
    """Blame a rank that went without a word (killed, or left) before those that complain: they miss
    it. Of these the first one."""
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and any(child.poll() is None for child in children):
        time.sleep(POLL_S)
    failures = sorted(folder.glob("*.error"), key=lambda path: path.stat().st_mtime_ns)
    explained = {int(path.stem) for path in failures}
    for rank, child in enumerate(children):
        status = child.poll()
        if status in (None, DONE) or rank in explained:
            continue
        if status < 0:
            raise RunError(f"rank {rank} was lost: killed by {_signal(-status)}")
        last = (_lines(folder / f"{rank}.log") or ["it said nothing"])[-1].strip()
        raise RunError(f"rank {rank} was lost: exit status {status}: {last}")
    kind, _, sentence = failures[0].read_text().partition("\n")
    if kind == "input":
        raise InputError(sentence)
    raise RunError(f"rank {failures[0].stem} failed: {sentence}")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of the real-time ones only the first and the last have a name
        return f"signal {number}"


def _end(children: "list[subprocess.Popen[bytes]]") -> None:
    for child in children:
        if child.poll() is None:
            child.kill()
    for child in children:
        child.wait()
        if child.stdin:
            child.stdin.close()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
