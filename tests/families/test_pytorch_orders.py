"""PyTorch's own orders, rank by rank, are ours; where PyTorch is wrong the difference is stated."""

from types import SimpleNamespace
from unittest import mock

import pytest
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.stage import PipelineStage

from unbubble.errors import InputError
from unbubble.families import family

MICROBATCHES = range(1, 15)
MANY = ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble")


def stage_of(ranks, virtual):
    """A stage that is never run, enough for a schedule to be made."""
    return SimpleNamespace(
        group_rank=0, group_size=ranks, num_stages=ranks * virtual, submod=None, stage_index=0,
        is_first=True, is_last=False, has_backward=True,
    )  # fmt: skip


def theirs(name, ranks, microbatches, virtual):
    """PyTorch's compute actions of each rank, or None where it refuses the parameters."""
    cls = schedules.get_schedule_class(name)
    stage = stage_of(ranks, virtual)
    many = issubclass(cls, schedules.PipelineScheduleMulti)
    # lowering to sends and receives, which its runtime does at once, is not looked at here
    with mock.patch.object(schedules._PipelineScheduleRuntime, "_prepare_schedule_with_comms"):
        try:
            made = cls([stage] * virtual if many else stage, microbatches)
        except ValueError:
            return None
    rows = made.pipeline_order if many else made._get_pipeline_order()
    return [
        [str(a) for a in rows[rank] if a is not None and "REDUCE" not in str(a)]
        for rank in range(ranks)
    ]


def ours(name, ranks, microbatches, virtual):
    try:
        schedule = family(name).generate(ranks, microbatches, virtual)
    except InputError:
        return None
    return [[str(a) for a in schedule.actions(rank)] for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize(
    ("name", "virtual"),
    [
        ("GPipe", 1),
        *((name, v) for name in MANY for v in (1, 2, 3, 4)),
        ("DualPipeV", 2),
        ("ZBVZeroBubble", 2),
    ],
)
def test_the_order_of_every_class(name, virtual, ranks):
    legal = 0
    for microbatches in (*MICROBATCHES, 16, 24, 32):
        expected = theirs(name, ranks, microbatches, virtual)
        assert ours(name, ranks, microbatches, virtual) == expected
        legal += expected is not None
    assert legal >= 3


@pytest.mark.parametrize(("ranks", "microbatches", "virtual"), [(4, 16, 4), (8, 32, 4), (2, 6, 5)])
@pytest.mark.parametrize("name", MANY)
def test_the_order_with_more_stages(name, ranks, microbatches, virtual):
    expected = theirs(name, ranks, microbatches, virtual)
    assert expected is not None
    assert ours(name, ranks, microbatches, virtual) == expected


def really_run(rank, ranks, microbatches):
    """What PyTorch's 1F1B calls on the stage of one rank when it runs, transfers left out."""
    calls = []
    stage = mock.create_autospec(PipelineStage, instance=True)
    stage.num_stages, stage.stage_index, stage.submod = ranks, rank, None
    stage.is_first, stage.is_last = rank == 0, rank == ranks - 1
    stage.has_backward = True
    stage.get_fwd_recv_ops.return_value = stage.get_fwd_send_ops.return_value = []
    stage.get_bwd_recv_ops.return_value = stage.get_bwd_send_ops.return_value = []
    stage.forward_one_chunk.side_effect = lambda i, *_, **__: calls.append(f"{rank}F{i}")
    stage.backward_one_chunk.side_effect = lambda i, **_: calls.append(f"{rank}B{i}")
    schedule = schedules.Schedule1F1B(stage, microbatches)
    with (
        mock.patch.object(schedules, "_batch_p2p", return_value=[]),
        mock.patch.object(schedule, "_initialize_stage"),
        mock.patch.object(schedule, "_maybe_get_loss"),
        mock.patch.object(schedule, "_maybe_compute_loss"),
        mock.patch.object(schedule, "_update_losses"),
    ):
        schedule._step_microbatches([()] * microbatches, [{}] * microbatches)
    return calls


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_1f1b_is_what_pytorch_runs_and_its_internal_form_is_wrong_on_the_last_rank(ranks):
    for microbatches in (ranks, ranks + 1, ranks + 5, 3 * ranks):
        our_rows = ours("1F1B", ranks, microbatches, 1)
        assert our_rows == [really_run(rank, ranks, microbatches) for rank in range(ranks)]
        form = theirs("1F1B", ranks, microbatches, 1)
        assert our_rows[:-1] == form[:-1]
        # PyTorch 2.13 counts the last rank's forwards from 1: 3F1,3B0,3F2,…,3F8
        last = [f"{ranks - 1}{k}" for i in range(microbatches) for k in (f"F{i + 1}", f"B{i}")]
        assert form[-1] == last
        assert our_rows[-1] != last


def test_pytorch_wants_as_many_microbatches_as_stages_for_1f1b_and_the_schedule_does_not():
    assert theirs("1F1B", 4, 3, 1) is None
    assert ours("1F1B", 4, 3, 1) is not None
