"""Kill a recorded training at random moments: do its files read back with every complete step?

    python benchmarks/recorder_kill.py [--kills 50] [--seed 1]

Each trial trains a pipeline of two processes, which note every step that is over in files of their
own. At a random moment one of them, or both, get SIGKILL; then the folder is read. A step that both
had noted must be there with a timeline, whole: no step may be missing, damaged or half.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from unbubble import InputError, record
from unbubble.trace import read

RANKS, MICROBATCHES = 2, 4
FEW = 2
"""Files that stay in half of the trials, so that they turn over."""
LONGEST_S = 0.6
"""Moments are spread evenly over so long after the first process began to train."""


def train(folder: Path, rank: int, keep: int) -> None:
    """Train until killed; `noted.RANK` gets a byte for every step that is over."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS
    )
    module = nn.Linear(8, 8)
    stage = PipelineStage(module, rank, RANKS, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    batch = torch.ones(MICROBATCHES, 8)
    given = () if rank else (batch,)
    wanted = {"target": batch} if rank else {}
    noted = os.open(folder / f"noted.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with record(schedule, optimizer, folder=folder / "steps", max_bytes=2_000, keep=keep):
        while True:
            schedule.step(*given, **wanted)
            optimizer.step()
            os.write(noted, b".")


def start(folder: Path, rank: int, keep: int) -> int:
    """A copy of this process, which has torch already, as one rank."""
    if child := os.fork():
        return child
    try:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        sys.stderr = (folder / f"log.{rank}").open("w")
        train(folder, rank, keep)
    except BaseException:
        traceback.print_exc()  # the other rank is gone; ours goes too
    finally:
        os._exit(1)


def noted(folder: Path, rank: int) -> int:
    path = folder / f"noted.{rank}"
    return path.stat().st_size if path.exists() else 0


def trial(folder: Path, draw: random.Random) -> tuple[int, int, int]:
    """Train, kill, read: the steps that were over, those that came back, and records cut off."""
    keep = draw.choice((FEW, 1000))
    victims = draw.choice(([0], [1], [0, 1]))
    children = [start(folder, rank, keep) for rank in range(RANKS)]
    try:
        deadline = time.monotonic() + 60
        while not (folder / "noted.0").exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, LONGEST_S))
        for rank in victims:
            os.kill(children[rank], signal.SIGKILL)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    over = min(noted(folder, rank) for rank in range(RANKS))
    try:
        trace = read([folder / "steps"])
    except InputError as error:
        expect(over == 0, f"{over} steps were over, and: {error}")
        return 0, 0, 0
    first, last = trace.steps[0], trace.steps[-1]
    expect(trace.steps == tuple(range(first, last + 1)), f"among {first} … {last} some are missing")
    expect(last >= over - 1, f"{over} steps were over, the last is {last}")
    expect(keep == FEW or first == 0, f"steps before {first} are gone")
    for step in trace.steps:
        (pipeline,) = trace.pipelines_of(step)
        expect(pipeline.timeline is not None, f"step {step}: {pipeline.unknown}")
        actions = sum(map(len, pipeline.timeline.schedule.codes))
        expect(actions == RANKS * (2 * MICROBATCHES + 2), f"step {step} has {actions} actions")
    return over, len(trace.steps), sum("cut off" in note for note in trace.ignored)


class LostStepError(Exception):
    """What was complete did not come back."""


def expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise LostStepError(otherwise)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    draw = random.Random(chosen.seed)
    over, back, cut, lost = 0, 0, 0, 0
    for number in range(chosen.kills):
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = trial(Path(folder), draw)
            except LostStepError as error:
                lost += 1
                print(f"kill {number}: {error}")
                continue
        over, back, cut = over + found[0], back + found[1], cut + found[2]
    print(f"{chosen.kills} kills: {over} steps were over, {back} read back from the files that "
          f"were kept, {cut} records cut off; {lost} kills lost a complete step")  # fmt: skip
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
