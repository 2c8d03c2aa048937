"""A training loop on PyTorch's own schedules with the live recorder around it, as a job's task."""

from time import perf_counter_ns

import torch
from torch import distributed as dist
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleZBVZeroBubble,
)

from unbubble import record
from unbubble.runtime import record as live
from unbubble.runtime.device import DeviceClock, DeviceRecorder
from unbubble.runtime.emulated import sleeping
from unbubble.runtime.workload import Stage

SCHEDULES = {
    "gpipe": (ScheduleGPipe, 1),
    "1f1b": (Schedule1F1B, 1),
    "interleaved-1f1b": (ScheduleInterleaved1F1B, 2),
    "zb-v": (ScheduleZBVZeroBubble, 2),
}
MICROBATCHES = 4
STEPS = 3
SECONDS = 0.002


def build(name):
    """This rank's schedule, its optimizer, and a function that takes one step."""
    schedule_class, virtual = SCHEDULES[name]
    rank, ranks = dist.get_rank(), dist.get_world_size()
    count = ranks * virtual
    here = [rank, count - 1 - rank] if name == "zb-v" else list(range(rank, count, ranks))
    workload = sleeping([[SECONDS, SECONDS, SECONDS]] * count, numbers=64)
    stages = [
        PipelineStage(Stage([workload.layers[s]]), s, count, torch.device("cpu")) for s in here
    ]
    schedule = schedule_class(
        stages if virtual > 1 else stages[0], MICROBATCHES, loss_fn=workload.loss
    )
    optimizer = torch.optim.SGD([p for s in stages for p in s.submod.parameters()], lr=1e-3)
    inputs, targets = workload.batch(0, MICROBATCHES)
    given = (inputs,) if 0 in here else ()
    wanted = {"target": targets} if count - 1 in here else {}

    def step(call=None):
        (call or schedule.step)(*given, **wanted)

    return schedule, optimizer, step


def train(folder, progress):
    """Steps of every schedule, recorded in folders of their names; what went wrong, in words."""
    wrong = []
    for name in SCHEDULES:
        schedule, optimizer, step = build(name)
        before = set(vars(schedule)), [set(vars(s)) for s in stages_of(schedule)]
        with record(schedule, optimizer, folder=f"{folder}/{name}"):
            for _ in range(STEPS):
                step()
                optimizer.step()
                if name != "zb-v":  # PyTorch's cannot evaluate
                    step(schedule.eval)
        if (set(vars(schedule)), [set(vars(s)) for s in stages_of(schedule)]) != before:
            wrong.append(f"{name}: something stayed replaced")
        step()  # not recorded any more
    by_stage(f"{folder}/stages")
    interrupted(f"{folder}/interrupted")
    as_on_a_device(f"{folder}/device")
    return wrong


def stages_of(schedule):
    return schedule._stages if hasattr(schedule, "_stages") else [schedule._stage]


def by_stage(folder):
    """Steps that the loop marks itself; those that fail are not recorded."""
    schedule, _, step = build("1f1b")
    stage = schedule._stage
    step()
    with record(stage, folder=folder, first_step=7, max_bytes=1, keep=2) as recorder:
        for _ in range(STEPS):
            with recorder.step():
                step()
            try:
                with recorder.step():
                    stage.forward_one_chunk = broken(stage.forward_one_chunk)
                    stage.forward_one_chunk(0)
            except ZeroDivisionError:
                stage.forward_one_chunk = stage.forward_one_chunk.whole


def broken(whole):
    def forward(*args):
        raise ZeroDivisionError

    forward.whole = whole
    return forward


def interrupted(folder):
    """A loop that is ended in its second optimizer."""
    schedule, optimizer, step = build("1f1b")
    try:
        with record(schedule, optimizer, folder=folder):
            step()
            optimizer.step()
            step()
            optimizer.step(interrupt)
    except KeyboardInterrupt:
        pass


def interrupt():
    raise KeyboardInterrupt


def as_on_a_device(folder):
    """Steps timed by events, which the device is past only after a while."""
    live.recorder_of = lambda device: DeviceRecorder(DeviceClock(Event))
    schedule, optimizer, step = build("1f1b")
    with record(schedule, optimizer, folder=folder):
        for _ in range(STEPS):
            step()
            optimizer.step()


class Event:
    """An event of a device that does everything at once and tells of it 20 ms later."""

    def record(self):
        self.at = perf_counter_ns()

    def query(self):
        return perf_counter_ns() > self.at + 20_000_000

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return (other.at - self.at) / 1e6
