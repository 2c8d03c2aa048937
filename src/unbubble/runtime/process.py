"""One process of a job: joins the group, calls the task, leaves its result or its reason."""

import gc
import importlib
import os
import sys
import threading
import traceback
from datetime import timedelta
from pathlib import Path
from time import sleep
from typing import Any

import msgspec
import torch
from torch import distributed as dist

from unbubble.errors import InputError, UnbubbleError
from unbubble.runtime.launch import DONE, Job


def main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    parent = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a model that asks for input gets none
    threading.Thread(target=_leave_with_parent, args=[parent], daemon=True).start()
    job = msgspec.json.decode((folder / "job.json").read_bytes(), type=Job)
    _gather(folder, rank, job.processes)
    try:
        result = call(job, f"file://{folder}/rendezvous", rank, _progress(folder, rank))
    except BaseException as error:  # a model that calls sys.exit, too
        traceback.print_exc()
        _leave_reason(folder / f"{rank}.error", error)
        os._exit(1)  # the group's threads may still wait for the others
    if rank == 0:
        (folder / "result.json").write_bytes(msgspec.json.encode(result))
    sys.stdout.flush()
    os._exit(DONE)  # nothing is left to do; the interpreter's own end takes a second with torch


def _gather(folder: Path, rank: int, processes: int) -> None:
    """Wait until all have loaded torch: the group's timeout is for what comes after."""
    (folder / f"{rank}.ready").touch()
    while len(list(folder.glob("*.ready"))) < processes:
        sleep(0.01)


def call(job: Job, rendezvous: str, rank: int, progress: Any) -> Any:
    """Join the group at `rendezvous` and call the job's task; rank 0's result on every rank."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=rendezvous,
        rank=rank,
        world_size=job.processes,
        timeout=timedelta(seconds=job.timeout_s),
    )
    try:
        module, _, function = job.task.partition(":")
        gc.disable()  # collected between steps, as training frameworks do
        result = getattr(importlib.import_module(module), function)(job.argument, progress)
        shared = [result]
        dist.broadcast_object_list(shared, 0)
        return shared[0]
    finally:
        dist.destroy_process_group()


def _progress(folder: Path, rank: int) -> Any:
    if rank:
        return lambda line: None

    def say(line: str) -> None:
        with (folder / "progress").open("a") as file:
            file.write(line + "\n")

    return say


def _leave_reason(path: Path, error: BaseException) -> None:
    kind = "input" if isinstance(error, InputError) else "run"
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(f"{kind}\n{sentence(error)}")
    unfinished.rename(path)


def sentence(error: BaseException) -> str:
    """An exception's first cause in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    return text if isinstance(error, UnbubbleError) else f"{type(error).__name__}: {text}"


def _leave_with_parent(parent: int) -> None:
    os.read(parent, 1)
    os._exit(130)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
