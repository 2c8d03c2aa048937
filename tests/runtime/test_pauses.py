"""The recorders around every schedule class of PyTorch, on a machine that pauses where it likes.

Nothing sleeps: the clock is a number that calls and waits move on, and a pause of up to 5 ms may
come before and after whatever anybody does.
"""

from random import Random
from types import SimpleNamespace

import pytest
from torch import nn
from torch.distributed.pipelining import schedules

from unbubble.action import COMPUTE, parse
from unbubble.families import generate
from unbubble.runtime import recorder as of_the_host
from unbubble.runtime.device import DeviceClock, DeviceRecorder
from unbubble.runtime.recorder import Recorder
from unbubble.schedule.lowering import lower
from unbubble.trace.recorded import Recorded

US, MS = 10**3, 10**6
CLASSES = {
    "gpipe": schedules.ScheduleGPipe,
    "1f1b": schedules.Schedule1F1B,
    "interleaved-1f1b": schedules.ScheduleInterleaved1F1B,
    "looped-bfs": schedules.ScheduleLoopedBFS,
    "interleaved-zb": schedules.ScheduleInterleavedZeroBubble,
    "zb-v": schedules.ScheduleZBVZeroBubble,
    "dualpipe-v": schedules.ScheduleDualPipeV,
    "a CSV": schedules._PipelineScheduleRuntime,
}


class Machine:
    """A host, and the stream of an accelerator if it `has_device`; ns."""

    def __init__(self, draw, *, has_device):
        self.draw, self.has_device = draw, has_device
        self.often = draw.choice((0.02, 0.1, 0.4))
        self.host, self.stream = 10**9, 0
        self.ran = {}
        """Of every action, when the model ran for it."""
        self.waited = []

    def pause(self):
        self.host += self.draw.randrange(200, 2 * US)
        if self.draw.random() < self.often:
            self.host += round(10 ** self.draw.uniform(4.3, 6.7))

    def read(self):
        self.host += self.draw.randrange(200, 2 * US)
        return self.host

    def run(self, action=None):
        """The model; without an action it is the loss, which belongs to the last one."""
        self.pause()
        begin = max(self.stream, self.host) if self.has_device else self.host
        self.stream = begin + self.draw.randrange(100 * US, 2 * MS)
        if not self.has_device:
            self.host = self.stream
        self.ran.setdefault(action or list(self.ran)[-1], []).append((begin, self.stream))
        self.pause()

    def transfers(self, operations, desc=None):
        self.pause()
        return operations

    def wait_for(self, transfers):
        """The host waits, or its stream."""
        begin = self.host
        self.pause()
        for _ in transfers:
            arrival = self.host + round(10 ** self.draw.uniform(2, 6.7))
            if self.has_device and self.draw.random() < 0.5:
                self.stream = max(self.stream, arrival)
            else:
                self.host = arrival
            self.waited.append((begin, arrival))
        self.pause()
        if transfers:
            self.waited.append((begin, self.host))

    def event(self):
        return Event(self)


class Event:
    """A point in the stream."""

    def __init__(self, machine):
        self.machine = machine

    def record(self):
        self.at = self.machine.stream = max(self.machine.stream, self.machine.host)

    def synchronize(self):
        self.machine.host = max(self.machine.host, self.at)

    def elapsed_time(self, other):
        return (other.at - self.at) / MS


def stage(machine, index, here, count):
    """What schedules call of PyTorch's stage."""

    def acting(kind_of, name):
        def act(chunk, *_, full_backward=True, **__):
            machine.pause()
            getattr(one, name)(f"{index}{kind_of(full_backward)}{chunk}")
            machine.pause()

        return act

    def operations(other):
        def made(chunk):
            machine.pause()
            return [SimpleNamespace(peer=0)] if 0 <= other < count and other not in here else []

        return made

    one = SimpleNamespace(
        stage_index=index, num_stages=count, submod=nn.Identity(), dw_builder=None,
        is_first=index == 0, is_last=index == count - 1,
        forward_maybe_with_nosync=machine.run, backward_maybe_with_nosync=machine.run,
        forward_one_chunk=acting(lambda full: "F", "forward_maybe_with_nosync"),
        backward_one_chunk=acting(lambda full: "IB"[full], "backward_maybe_with_nosync"),
        backward_weight_one_chunk=acting(lambda full: "W", "backward_maybe_with_nosync"),
        get_fwd_recv_ops=operations(index - 1), get_bwd_send_ops=operations(index - 1),
        get_fwd_send_ops=operations(index + 1), get_bwd_recv_ops=operations(index + 1),
    )  # fmt: skip
    for name in ("perform_reduce_grad", "set_local_fwd_input", "set_local_bwd_input",
                 "get_local_bwd_output"):  # fmt: skip
        setattr(one, name, lambda *_: machine.pause())
    return one


def schedule_of(machine, name, rank, ranks, microbatches):
    virtual = 1 if name in ("gpipe", "1f1b") else 2
    count = ranks * virtual
    here = [rank, count - 1 - rank] if name.endswith("-v") else list(range(rank, count, ranks))
    stages = [stage(machine, s, here, count) for s in here]
    for one in stages:
        one.group_size, one.group_rank = ranks, rank
    schedule = CLASSES[name](
        stages if virtual > 1 else stages[0], microbatches, loss_fn=lambda *_: machine.run()
    )
    if name == "a CSV":
        order = lower(generate("interleaved-zb", ranks, microbatches, virtual=virtual))
        rows = {r: [schedules._Action.from_str(str(a)) for a in order.actions(r)]
                for r in range(ranks)}  # fmt: skip
        schedule._prepare_schedule_with_comms(rows, "compute_comms")
    schedule._initialize_stage = schedule._initialize_stages = lambda *_: machine.pause()
    return schedule


@pytest.mark.parametrize("has_device", [False, True])
@pytest.mark.parametrize("name", CLASSES)
def test_a_record_holds_what_the_model_did_whatever_pauses_between(monkeypatch, name, has_device):
    for ranks, rank, seed in [(p, r, s) for p in (2, 3, 4) for r in range(p) for s in range(2)]:
        machine = Machine(Random(f"{name} {ranks} {rank} {seed}"), has_device=has_device)
        monkeypatch.setattr(of_the_host, "perf_counter_ns", machine.read)
        monkeypatch.setattr(schedules, "_batch_p2p", machine.transfers)
        monkeypatch.setattr(schedules, "_wait_batch_p2p", machine.wait_for)
        clock = DeviceClock(machine.event, machine.read) if has_device else None
        recorder = DeviceRecorder(clock) if clock else Recorder()
        shift = clock._reference.host - clock._reference.event.at if clock else 0
        schedule = schedule_of(machine, name, rank, ranks, 2 * ranks)
        recorder.watch(schedule)
        with recorder.recording():
            schedule._step_microbatches(*[[{}] * 2 * ranks] * 3)
        actions, columns = recorder.take()
        recorder.unwatch()
        found = columns()
        seen = Recorded(map(parse, actions)).seen(found)  # it does not contradict itself
        before = found.begin
        for one, wait, own in zip(seen, found.waits, found.own, strict=True):
            where = f"{one.action} of rank {rank} of {ranks}, seed {seed}"
            ran = [(begin + shift, end + shift) for part in one.action.parts
                   for begin, end in machine.ran.get(str(part), ())]  # fmt: skip
            assert bool(ran) == (one.action.kind in COMPUTE), where
            if ran:
                assert own >= sum(end - begin for begin, end in ran) - 10, where
                assert one.end >= ran[-1][1] - 10, where
            if ran and one.action.pair is None:
                assert one.start <= ran[0][0] + 10, where
            if wait > 60 * US:
                assert any(
                    begin + shift < one.end and end + shift > before
                    for begin, end in machine.waited
                ), where
            before = one.end
