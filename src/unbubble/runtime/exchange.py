"""Exchange: what it costs to send between two processes, alone and on the pipeline's runtime."""

from time import perf_counter_ns
from typing import Any

import msgspec
import torch
from torch import distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules

from unbubble.families import generate
from unbubble.runtime.profile import Exchange, ProfileJob, usual_size
from unbubble.runtime.recorder import Recorder
from unbubble.runtime.workload import Stage, Workload
from unbubble.schedule.lowering import lower

MICROBATCHES = 8
SIZES = (1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22)


def exchanges(job: ProfileJob, output_bytes: list[int]) -> list[Any]:
    """Messages of several sizes between ranks 0 and 1, both ways in turn."""
    found = []
    busy = torch.ones(1 << 21)
    for late in (False, True):
        for size in sorted({*SIZES, *output_bytes}):
            exchange = Exchange(size_bytes=size, late=late, send=[], recv=[], arrival=[])
            for number in range(-2 * job.warmup, 2 * job.rounds):
                dist.barrier()
                if dist.get_rank() < 2:
                    _exchange(exchange, busy, sender=number % 2, keep=number >= 0)
            found.append(exchange)
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, msgspec.to_builtins(found))
    for first, second in zip(*ranks[:2], strict=True):
        for samples in ("send", "recv", "arrival"):
            first[samples] += second[samples]
    return ranks[0]


def _exchange(exchange: Exchange, busy: torch.Tensor, *, sender: int, keep: bool) -> None:
    """One message; the receive is posted long before the send, or long after it if `late`.

    Whoever posts later works meanwhile, on more memory than its cache holds, and the receiver works
    on after an early post, as in a pipeline.
    """
    me, peer = dist.get_rank(), 1 - dist.get_rank()
    sends = me == sender
    tensor = torch.ones(max(exchange.size_bytes // 4, 1))
    for _ in range(4 if sends != exchange.late else 0):
        busy.mul_(1.0)
    tensor.add_(1)  # written just now, as an output is
    begin = perf_counter_ns()
    operation = dist.P2POp(dist.isend if sends else dist.irecv, tensor, peer)
    work = schedules._batch_p2p([operation])
    posted = perf_counter_ns()
    for _ in range(2 if not (sends or exchange.late) else 0):
        busy.mul_(1.0)
    schedules._wait_batch_p2p(work)
    arrived = perf_counter_ns()
    mine, theirs = torch.tensor([posted]), torch.tensor([0])
    telling = dist.isend(mine, peer, tag=1)
    dist.recv(theirs, peer, tag=1)
    telling.wait()
    if keep and sends:
        exchange.send.append(posted - begin)
    elif keep:
        exchange.recv.append(posted - begin)
        exchange.arrival.append(max(0, arrived - max(posted, int(theirs[0]))))


def posts(job: ProfileJob, workload: Workload, output_bytes: list[int]) -> dict[str, list[int]]:
    """The host's time of the runtime's SEND and RECV actions, in ns: 1F1B on a few of the layers,
    cut behind one whose output has the usual size. A post between computing takes several times as
    long as one that repeats the last."""
    group = dist.new_group([0, 1])
    rank = dist.get_rank()
    found: dict[str, list[int]] = {"send": [], "recv": []}
    if rank < 2 and output_bytes:
        cut = output_bytes.index(usual_size(output_bytes)) + 1
        layers = (workload.layers[:cut], workload.layers[cut : cut + 2])[rank]
        stage = PipelineStage(Stage(layers), rank, 2, torch.device("cpu"), group=group)
        order = lower(generate("1f1b", 2, MICROBATCHES))
        schedule = schedules._PipelineScheduleRuntime([stage], MICROBATCHES, loss_fn=_any_loss)
        schedule._prepare_schedule_with_comms(
            {r: [schedules._Action.from_str(str(a)) for a in order.actions(r)] for r in (0, 1)},
            "compute_comms",
        )
        inputs, targets = workload.batch(0, MICROBATCHES)
        given = {"target": targets} if rank else {}
        recorder = Recorder()
        for number in range(-job.warmup, job.rounds):
            dist.barrier(group)
            with recorder.recording():
                schedule.step(*(() if rank else (inputs,)), **given, return_outputs=False)
            actions, columns = recorder.take()
            for action, time in zip(actions, columns().times, strict=True):
                if number >= 0 and "_" in action:
                    found["send" if "SEND" in action else "recv"].append(time)
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, found)
    return {key: [time for one in ranks for time in one[key]] for key in found}


def _any_loss(output: Any, target: torch.Tensor) -> torch.Tensor:
    outputs = output if isinstance(output, tuple) else (output,)
    return sum((x.float().mean() for x in outputs), start=torch.zeros(()))
