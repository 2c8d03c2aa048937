"""The recorder around calls that this file makes in the order in which PyTorch makes them."""

from time import perf_counter_ns, sleep
from types import SimpleNamespace

import pytest
from torch import nn
from torch.distributed.pipelining import schedules

from unbubble.action import parse
from unbubble.runtime.recorder import Recorder
from unbubble.trace.recorded import Recorded


@pytest.mark.parametrize("seconds", [20e-6, 2e-3])
def test_a_pause_between_a_forward_and_its_loss_is_the_forwards(monkeypatch, seconds):
    """The last stage of `Schedule1F1B` waits for no send between its first forward and the loss.

    That took 47 µs once, as the machine was busy, and was taken for a wait of the backward after
    the loss, though the loss had already made the forward longer: the backward took less time than
    the model in it, the record contradicted itself, and the whole folder was refused.
    """
    monkeypatch.setattr(schedules, "_wait_batch_p2p", lambda work: sleep(seconds))
    stage = SimpleNamespace(stage_index=1, dw_builder=None, submod=nn.Identity())
    for name in ("forward_maybe_with_nosync", "backward_maybe_with_nosync"):
        setattr(stage, name, lambda: sleep(1e-3))
    for name in ("get_fwd_recv_ops", "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops"):
        setattr(stage, name, lambda chunk: [])
    stage.forward_one_chunk = lambda chunk: stage.forward_maybe_with_nosync()
    stage.backward_one_chunk = lambda chunk: stage.backward_maybe_with_nosync()
    stage.backward_weight_one_chunk = stage.perform_reduce_grad = lambda *_: None
    schedule = SimpleNamespace(_stage=stage, _compute_loss=lambda: sleep(1e-3))
    recorder = Recorder()
    recorder.watch(schedule)
    with recorder.recording():
        stage.forward_one_chunk(0)
        schedules._wait_batch_p2p([])
        schedule._compute_loss()
        stage.backward_one_chunk(0)
        finish = perf_counter_ns()
    actions, columns = recorder.take()
    assert actions == ["1F0", "1B0"]
    forward, backward = Recorded(map(parse, actions)).seen(columns())
    assert forward.end == backward.start <= finish
    assert forward.end - forward.start - forward.overhead >= 2e6
    assert forward.overhead >= seconds * 1e9
    assert backward.overhead < 1e6 <= backward.end - backward.start
