"""The proof of a schedule: what it accepts, and every fault by rank, position and action."""

import pytest

from unbubble.errors import InputError
from unbubble.schedule import Schedule
from unbubble.schedule.check import check


def _schedule(*rows, **options):
    return Schedule.of([row.split() for row in rows], **options)


def test_a_complete_schedule_is_good():
    report = check(Schedule.of([["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1I1", "1W1"]]))
    assert report.good
    assert report.faults == report.deadlock == ()


def test_pytorchs_internal_1f1b_form_is_wrong_on_its_last_rank():
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    rows = [[str(a) for a in row if a] for row in get_schedule_ops("1F1B", 4, 8)]
    assert rows[3][:4] == ["3F1", "3B0", "3F2", "3B1"]
    report = check(Schedule.of(rows))
    assert [f[:3] for f in report.faults] == [(3, 1, "3F0"), (3, 14, "3F8")]
    assert [b.action for b in report.deadlock] == ["0B7", "1B7", "2B7", "3F8"]


def test_both_ranks_sending_first_blocks_unless_buffered_or_batched():
    schedule = _schedule(
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
        "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
    )
    blocked = check(schedule, "blocking").deadlock
    assert [(b.rank, b.action, b.waits_for) for b in blocked] == [
        (0, "0SEND_F1", "1RECV_F1"),
        (1, "1SEND_B0", "0RECV_B0"),
    ]
    assert check(schedule, "buffered").good
    assert check(schedule, "batched").good


def test_an_unknown_kind_of_send_is_refused():
    with pytest.raises(InputError, match="blocking, buffered, batched"):
        check(Schedule.of([["0F0", "0B0"]]), "sometimes")
