"""The recorder for accelerators, on a device that is a few lines: a stream, a host, and events."""

from types import SimpleNamespace

import pytest
from torch import nn
from torch.distributed.pipelining import schedules

from unbubble.runtime.device import DeviceClock, DeviceRecorder

MS = 10**6


class Device:
    """A stream that is busy until `free`, and the host's clock; both in ns."""

    def __init__(self):
        self.free = self.host = 0

    def run(self, ms):
        self.free = max(self.free, self.host) + round(ms * MS)

    def until(self, ms):
        """The stream waits for what arrives then."""
        self.free = max(self.free, self.host, ms * MS)

    def event(self):
        return Event(self)


class Event:
    def __init__(self, device):
        self.device = device

    def record(self):
        self.device.free = self.at = max(self.device.free, self.device.host)

    def synchronize(self):
        self.device.host = max(self.device.host, self.at)

    def query(self):
        return self.at <= self.device.host

    def elapsed_time(self, other):
        return (other.at - self.at) / MS


@pytest.fixture
def device():
    return Device()


@pytest.fixture
def recorder(device):
    return DeviceRecorder(DeviceClock(device.event, lambda: device.host))


def stage(device, wait_until):
    """A stage whose forward takes 10 ms and whose backward 20, on the device."""
    here = SimpleNamespace(stage_index=1, dw_builder=None, submod=nn.Identity())
    here.forward_maybe_with_nosync = lambda: device.run(10)
    here.backward_maybe_with_nosync = lambda: device.run(20)
    here.perform_reduce_grad = here.backward_weight_one_chunk = lambda *_: None
    for name in ("get_fwd_recv_ops", "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops"):
        setattr(here, name, lambda chunk: [])

    def forward(chunk):
        device.until(wait_until[chunk])
        here.forward_maybe_with_nosync()

    here.forward_one_chunk = forward
    here.backward_one_chunk = lambda chunk: here.backward_maybe_with_nosync()
    return here


def test_waits_are_the_streams_and_a_late_host_is_overhead(device, recorder):
    one = stage(device, [30, 100])
    recorder.watch_stage(one)
    with recorder.recording():
        one.forward_one_chunk(0)  # 30 … 40
        one.forward_one_chunk(1)  # waits until 100, ends at 110; the host is still at 0
        device.host = 150 * MS  # nothing to do from 110 on
        one.backward_one_chunk(0)  # 150 … 170
        one.backward_one_chunk(1)  # 170 … 190
        finish = recorder.clock.mark()
    actions, columns = recorder.take()
    assert not recorder.clock.passed(finish)
    device.host = 200 * MS
    assert recorder.clock.passed(finish)
    begin, waits, times, own = columns()
    assert actions == ["1F0", "1F1", "1B0", "1B1"]
    assert begin == 30 * MS
    assert [ns / MS for ns in waits] == [0, 60, 0, 0]
    assert [ns / MS for ns in times] == [10, 10, 60, 20]
    assert [ns / MS for ns in own] == [10, 10, 20, 20]


def test_a_host_that_waits_itself_is_no_overhead(device, recorder):
    one = stage(device, [0, 0])
    recorder.watch_stage(one)
    with recorder.recording():
        one.forward_one_chunk(0)  # 0 … 10
        recorder._wait, recorder._resumed = 20 * MS, 30 * MS  # for the network, until 30
        device.host = 35 * MS
        one.forward_one_chunk(1)
    _, columns = recorder.take()
    _, waits, times, own = columns()
    assert [ns / MS for ns in waits] == [0, 20]
    assert [ns / MS for ns in times] == [10, 15]
    assert [ns / MS for ns in own] == [10, 10]


def test_a_loss_after_its_forward_belongs_to_it(device, recorder):
    one = stage(device, [0])
    schedule = SimpleNamespace(_stage=one, _compute_loss=lambda: device.run(3))
    recorder.watch(schedule)
    with recorder.recording():
        one.forward_one_chunk(0)
        schedule._compute_loss()
    _, columns = recorder.take()
    assert columns().times == [13 * MS]
    recorder.unwatch()
    assert "_rows" not in vars(schedule)
    schedule._compute_loss()
    assert device.free == 16 * MS


def test_steps_that_wait_for_the_device_keep_their_rows(device, recorder):
    one = stage(device, [0, 0])
    recorder.watch_stage(one)
    taken = []
    for _ in range(2):
        with recorder.recording():
            one.forward_one_chunk(0)
            one.backward_one_chunk(0)
        taken.append(recorder.take())
    assert [columns().begin / MS for _, columns in taken] == [0, 30]


def test_clocks_meet_again_after_a_while(device):
    clock = DeviceClock(device.event, lambda: device.host)
    assert not clock.due
    device.host = 31 * 10**9
    assert clock.due
    device.run(50)
    clock.meet()
    assert not clock.due
    assert device.host == 31 * 10**9 + 50 * MS
    assert clock.ns(clock.mark()) == device.host


def test_a_host_that_waits_between_a_forward_and_its_loss_waits_in_that_forward(device, recorder):
    one = stage(device, [0, 0])
    schedule = SimpleNamespace(_stage=one, _compute_loss=lambda: device.run(1))
    recorder.watch(schedule)
    with recorder.recording():
        one.forward_one_chunk(0)  # 0 … 10
        recorder._wait, recorder._resumed = 20 * MS, 20 * MS  # for the network, until 20
        device.host = 20 * MS
        schedule._compute_loss()  # 20 … 21
        device.host = 30 * MS
        one.backward_one_chunk(0)  # 30 … 50: late, and nothing was waited for since the loss
    _, columns = recorder.take()
    _, waits, times, own = columns()
    assert [ns / MS for ns in waits] == [0, 0]
    assert [ns / MS for ns in times] == [21, 29]
    assert [ns / MS for ns in own] == [11, 20]


def test_a_host_that_waited_while_its_device_ran_is_late_all_the_same(device, recorder):
    one = stage(device, [0, 0])
    recorder.watch_stage(one)
    with recorder.recording():
        one.forward_one_chunk(0)  # 0 … 10
        recorder._wait, recorder._resumed = 4 * MS, 4 * MS
        device.host = 35 * MS
        one.forward_one_chunk(1)
    _, columns = recorder.take()
    assert columns().waits == [0, 0]
    assert columns().times == [10 * MS, 35 * MS]


def test_a_late_host_costs_nothing_where_its_stream_waits_on(device, recorder):
    one = stage(device, [0, 40])
    recorder.watch_stage(one)
    with recorder.recording():
        one.forward_one_chunk(0)  # 0 … 10
        device.host = 35 * MS
        one.forward_one_chunk(1)  # 40 … 50
    _, columns = recorder.take()
    assert columns().waits == [0, 30 * MS]
    assert columns().times == [10 * MS, 10 * MS]


def test_a_pair_may_wait_before_each_of_its_parts(device, recorder):
    one = stage(device, [0, 30])
    recorder.watch_stage(one, annotated=True)
    with recorder.recording():
        for action, wait in (("1F0", 0), ("(1F1;1B0)OVERLAP_F_B", 60)):
            with schedules.record_function(f"PP:{action}"):
                one.forward_one_chunk(wait > 0)  # 0 … 10, 30 … 40
                if wait:
                    device.until(wait)
                    one.backward_one_chunk(0)  # 60 … 80
    _, columns = recorder.take()
    assert columns().waits == [0, 40 * MS]
    assert columns().times == columns().own == [10 * MS, 30 * MS]
