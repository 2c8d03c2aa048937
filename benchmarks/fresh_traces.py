"""How well traces are read that were made just now: against a clock beside the profiler.

    python benchmarks/fresh_traces.py [SCHEDULE…] [--ranks 2] [--steps 3] [--keep FOLDER] [-v]

Processes on gloo train small unequal stages under PyTorch's own schedules and its profiler, and
note beside it when every call of a stage, its loss and the optimizer began and ended. What `trace`
says of each step is compared with the same ladder of the noted times: of every rank the error of
compute (`actions`: without the optimizer), and those of the other classes in percent of the step,
each the worst of the steps. None may be above 2 %.

Where a forward's range holds its loss, or the trace names nothing, the two cannot be told apart and
the noted forward lasts until its loss; GPipe's ranges leave it out. Exit status 1 if an
error is above that or a trace is not read whole. A busy machine has more: an idle one is wanted.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.trace.truth import CLASSES, errors, truth  # noqa: E402

from unbubble.attribution import attribute  # noqa: E402
from unbubble.trace import read  # noqa: E402

SCHEDULES = (
    "1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble",
)  # fmt: skip
LOSS_APART = ("GPipe",)
"""Its ranges end before the loss."""
WIDTH, LAYERS, SAMPLES, VOCABULARY = 512, 8, 64, 2048
MOST = 0.02
WARMUP = 2


def train(folder: Path, names: list[str], rank: int, ranks: int, steps: int) -> None:
    """One rank: all schedules, each profiled."""
    import torch
    from torch import distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks
    )
    for name in names:
        (folder / name).mkdir(exist_ok=True)
        one_schedule(folder / name, name, rank, ranks, steps)
        dist.barrier()
    dist.destroy_process_group()


def one_schedule(folder: Path, name: str, rank: int, ranks: int, steps: int) -> None:
    import torch
    from torch import distributed as dist
    from torch.distributed.pipelining import PipelineStage, schedules
    from torch.profiler import ProfilerActivity, profile
    from torch.profiler import schedule as turns

    torch.manual_seed(0)
    made = schedules.get_schedule_class(name)
    many = issubclass(made, schedules.PipelineScheduleMulti)
    count = 2 * ranks if many else ranks
    held = [rank]
    if many:
        held.append(count - 1 - rank if name == "ZBVZeroBubble" else rank + ranks)
    stages = [PipelineStage(layers(i, count), i, count, torch.device("cpu")) for i in held]
    noted: list[Any] = []
    for stage in stages:
        for method in ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk"):
            note(noted, stage, method)
    microbatches = 2 * ranks
    loss = torch.nn.functional.cross_entropy
    schedule = made(stages if many else stages[0], n_microbatches=microbatches, loss_fn=loss)
    note_loss(noted, schedule)
    parameters = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    samples = microbatches * SAMPLES
    given = (torch.randn(samples, WIDTH),) if any(stage.is_first for stage in stages) else ()
    wanted: dict[str, Any] = {}
    if any(stage.is_last for stage in stages):
        wanted = {"target": torch.randint(VOCABULARY, (samples,)), "losses": []}

    def step(number: int) -> None:
        dist.barrier()
        begin = time.time_ns()
        optimizer.zero_grad()
        schedule.step(*given, **wanted)
        before = time.time_ns()
        optimizer.step()
        after = time.time_ns()
        noted.append(("optimizer", -1, number, before, after))
        noted.append(("step", -1, number, begin, after))

    for _ in range(WARMUP):
        step(-1)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=turns(wait=0, warmup=1, active=steps, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(str(folder / f"rank{rank}.json.gz")),
    ) as profiler:
        for number in range(steps + 1):
            step(number)
            profiler.step()
    (folder / f"truth_rank{rank}.json").write_text(json.dumps(noted))


def layers(stage: int, count: int) -> Any:
    """A stage's model: the later the more layers, and a vocabulary at the end."""
    from torch import nn

    extra = [nn.Linear(WIDTH, VOCABULARY)] if stage == count - 1 else []
    depth = LAYERS + 2 * stage * LAYERS // (3 * count)
    hidden = [layer for _ in range(depth) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*hidden, *extra)


def note(noted: list[Any], stage: Any, method: str) -> None:
    """Note when every call of a stage's method began and ended."""
    call = getattr(stage, method)

    def timed(microbatch: int, *args: Any, **kwargs: Any) -> Any:
        name = method if kwargs.get("full_backward", True) else "backward_input_one_chunk"
        begin = time.time_ns()
        result = call(microbatch, *args, **kwargs)
        noted.append((name, stage.stage_index, microbatch, begin, time.time_ns()))
        return result

    setattr(stage, method, timed)


def note_loss(noted: list[Any], schedule: Any) -> None:
    """The same for the loss of every microbatch."""
    call = schedule._maybe_compute_loss

    def timed(stage: Any, output: Any, targets: Any, microbatch: int, *args: Any) -> Any:
        begin = time.time_ns()
        result = call(stage, output, targets, microbatch, *args)
        if stage.is_last:
            noted.append(("loss", stage.stage_index, microbatch, begin, time.time_ns()))
        return result

    schedule._maybe_compute_loss = timed


def compared(folder: Path, number: int) -> tuple[list[dict[str, float]], tuple[str, ...]]:
    """A step's errors by rank, or none; and what the trace could not tell."""
    (pipeline,) = read([str(folder / "rank*")], step=number).pipelines
    timeline = pipeline.timeline
    if timeline is None:
        return [], pipeline.unknown
    zero = min(one.actions[0].start for one in pipeline.observed)
    right = truth(folder, number, timeline, zero, losses=folder.name not in LOSS_APART)
    if timeline.schedule.codes != right.schedule.codes:
        return [], (*pipeline.unknown, "the order of actions is not the one that ran")
    rows = zip(attribute(timeline).ranks, attribute(right).ranks, strict=True)
    return [errors(*row) for row in rows], pipeline.unknown


def report(folder: Path, steps: int, verbose: bool) -> bool:
    """Print a schedule's errors; whether none is above 2 %."""
    worst: dict[int, dict[str, float]] = {}
    told: dict[str, None] = {}
    good = True
    for number in range(1, steps + 1):
        rows, unknown = compared(folder, number)
        told |= dict.fromkeys(unknown)
        good &= bool(rows)
        for rank, row in enumerate(rows):
            if verbose:
                print(line(f"  step {number}", rank, row))
            before = worst.setdefault(rank, row)
            worst[rank] = {k: max(before[k], row[k], key=abs) for k in row}
    for rank, row in worst.items():
        print(line(folder.name, rank, row))
        good &= all(abs(error) <= MOST for error in row.values())
    for reason in told:
        print(f"    cannot tell: {reason}")
    return good


def line(name: str, rank: int, row: dict[str, float]) -> str:
    shown = [f"{error:+9.2%}{' ' if abs(error) <= MOST else '!'}" for error in row.values()]
    return f"{name:<22}{rank:>4}{''.join(shown)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("schedules", nargs="*", metavar="SCHEDULE", default=[])
    parser.add_argument("--ranks", type=int, choices=range(2, 9), default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the traces there")
    parser.add_argument("-v", "--verbose", action="store_true", help="every step")
    options = parser.parse_args()
    names = options.schedules or list(SCHEDULES)
    if unknown := [name for name in names if name not in SCHEDULES]:
        parser.error(f"{unknown[0]} is none of {', '.join(SCHEDULES)}")
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / "rendezvous").unlink(missing_ok=True)
    with nullcontext(options.keep) if options.keep else tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        spawn = multiprocessing.get_context("spawn")
        arguments = [(folder, names, r, options.ranks, options.steps) for r in range(options.ranks)]
        processes = [spawn.Process(target=train, args=one) for one in arguments]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            print("fresh_traces.py: a rank failed; its message is above", file=sys.stderr)
            return 1
        print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores, "
              f"{options.ranks} ranks; errors, the worst of {options.steps} steps")  # fmt: skip
        heads = ["compute", "actions", *(c.replace("imbalance_", "") for c in CLASSES)]
        print(f"{'schedule':<22}rank{''.join(f'{h[:8]:>9} ' for h in heads)}")
        good = [report(folder / name, options.steps, options.verbose) for name in names]
    print(f"{sum(good)} of {len(good)} schedules within {MOST:.0%}")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
