"""The proof of a schedule: what it accepts, and every fault by rank, position and action."""

import pytest

from unbubble.errors import InputError
from unbubble.schedule import Placement, Schedule
from unbubble.schedule.check import MOST_FAULTS, check, check_rows, grid
from unbubble.schedule.pytorch_csv import parse_rows


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


def _found(*rows, **options):
    return [(f.rank, f.position, f.action) for f in check(_schedule(*rows, **options)).faults]


def test_the_deadlock_of_receives_put_off_in_pytorch_172668():
    # as reported there: 3SEND_B0 waits for a receive behind 0SEND_F2, whose receive is behind it
    schedule = _schedule(
        "0F0 0SEND_F0 0F1 0SEND_F1 2RECV_F0 2RECV_F1 2F0 2SEND_F0 2F1 2SEND_F1 0F2 0SEND_F2 "
        "2RECV_B0 2B0 2SEND_B0 2RECV_B1 2B1 2SEND_B1 2RECV_F2 2F2 2SEND_F2 "
        "0RECV_B0 0B0 0RECV_B1 0B1 2RECV_B2 2B2 2SEND_B2 0RECV_B2 0B2",
        "1RECV_F0 1F0 1RECV_F1 1SEND_F0 1F1 1SEND_F1 3RECV_F0 3F0 3B0 3RECV_F1 3SEND_B0 3F1 3B1 "
        "1RECV_F2 3SEND_B1 1F2 1SEND_F2 1RECV_B0 1B0 1SEND_B0 1RECV_B1 1B1 1SEND_B1 "
        "3RECV_F2 3F2 3B2 3SEND_B2 1RECV_B2 1B2 1SEND_B2",
    )
    report = check(schedule, "blocking")
    assert report.faults == ()
    assert [(b.action, b.waits_for) for b in report.deadlock] == [
        ("0SEND_F2", "1RECV_F2"),
        ("3SEND_B0", "2RECV_B0"),
    ]
    assert check(schedule, "buffered").good


def test_receiving_first_on_both_ranks_blocks_whatever_a_send_does():
    schedule = _schedule(
        "0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 0RECV_B1 0B1",
        "1RECV_F0 1F0 1B0 1RECV_F1 1SEND_B0 1F1 1B1 1SEND_B1",
    )
    for send in ("blocking", "buffered"):
        assert [b.action for b in check(schedule, send).deadlock] == ["0RECV_B0", "1RECV_F1"]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (["0F0 0F0 0B0"], (0, 1, "0F0")),
        (["0F0 0B0 0B0"], (0, 2, "0B0")),
        (["0F0 0B0 0F1"], (0, 3, "0B1")),
        (["0F0 0I0 0F1 0I1 0W1"], (0, 5, "0W0")),
        (["0F0 0W0 0I0"], (0, 1, "0W0")),
        (["0B0 0F0"], (0, 0, "0B0")),
        (["0F0 0B0 0I0 0W0"], (0, 1, "0B0")),
        (["(0F0;0B0)OVERLAP_F_B"], (0, 0, "0B0")),
        (["0F0 0REDUCE_GRAD 0B0"], (0, 2, "0B0")),
        (["0F0 0B0 0OPTIMIZER 0REDUCE_GRAD"], (0, 3, "0REDUCE_GRAD")),
        (["0F0 0B0 0REDUCE_GRAD", "1F0 1B0"], (1, 2, "1REDUCE_GRAD")),
        (["0UNSHARD 0F0 0B0"], (0, 3, "0RESHARD")),
        (["0UNSHARD 0F0 0RESHARD 0B0"], (0, 3, "0B0")),
        (["0UNSHARD 0UNSHARD 0F0 0B0 0RESHARD"], (0, 1, "0UNSHARD")),
        (["0UNSHARD 0F0 0B0 0RESHARD 0UNSHARD 0RESHARD"], (0, 5, "0RESHARD")),
        (["0F0 0SEND_F0 0B0"], (0, 1, "0SEND_F0")),
        (["0F0 0SEND_F0 0RECV_B0 0B0", "1F0 1B0 1SEND_B0"], (1, 0, "1RECV_F0")),
        (["0F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"], (0, 1, "0SEND_F0")),
        (["0SEND_F0 0F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"], (0, 0, "0SEND_F0")),
        (["0F0 0SEND_F0 0RECV_B0 0B0", "1F0 1RECV_F0 1B0 1SEND_B0"], (1, 1, "1RECV_F0")),
        (["1F0 0F0 1B0 0B0"], (0, 0, "1F0")),
        (["0F0 1F0 0B0 1B0"], (0, 2, "0B0")),
        (["0F0 1F0 0SEND_F0 1B0 0B0"], (0, 2, "0SEND_F0")),
    ],
)
def test_one_fault_is_found_where_it_is(rows, fault):
    assert _found(*rows) == [fault]


def test_pytorchs_deferred_receives_swap_messages():
    """With `defer_pp_recv` rank 1 asks for 2RECV_B0 before 1RECV_F2, which rank 0 sends first: both
    are taken for the other, and the gradients come out wrong without an error."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    rows = get_schedule_ops("ZBVZeroBubble", 2, 4, 2, with_comms=True, defer_pp_recv=True)
    faults = check(Schedule.of([map(str, row) for row in rows])).faults
    assert [f[:3] for f in faults] == [(1, 10, "2RECV_B0")]


def test_receives_in_another_order_than_the_sends_are_a_fault():
    rows = [
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B1 0B1 0RECV_B0 0B0",
        "1RECV_F1 1RECV_F0 1F0 1F1 1B1 1SEND_B1 1B0 1SEND_B0",
    ]
    assert _found(*rows) == [(1, 0, "1RECV_F1")]
    assert check(_schedule(*rows), "blocking").deadlock == ()  # the wrong tensors arrive instead


def test_a_microbatch_stays_within_its_copy():
    copies = Placement((0, 1, 1, 0), copies=2)
    rows = [["0F0", "0B0", "3F1", "3B1"], ["2F1", "1F0", "1B0", "2B1"]]
    assert check(Schedule.of(rows, copies)).good
    rows[0][2:] = ["0F1", "0B1"]
    faults = check(Schedule.of(rows, copies)).faults
    assert {f.action for f in faults if "another copy" in f.fault} == {"2F1", "2B1"}


def test_without_a_flush_the_optimizer_may_come_between():
    rows = ["0F0 0B0 0OPTIMIZER 0F1 0B1 0OPTIMIZER"]
    assert check(_schedule(*rows, flush=False)).good
    assert _found(*rows) == [(0, 3, "0F1"), (0, 4, "0B1"), (0, 5, "0OPTIMIZER")]


def test_a_stage_on_two_ranks_is_a_fault_on_the_rank_that_uses_it_less():
    rows = parse_rows("0F0,0B0,1F0\n1F1,1B0,1B1\n")
    assert [tuple(f[:3]) for f in check_rows(rows).faults] == [(0, 2, "1F0")]
    assert [f.fault for f in check_rows(parse_rows("0F0,0B0\n2F0,2B0\n")).faults] == [
        "stage 1 is missing; stages count from 0 without a gap"
    ] * 2


@pytest.mark.parametrize(
    "text",
    [
        "16777215F2147483646\n",
        "0F2147483646,0B2147483646\n1F0,1B0\n",
        "0F0," * 20_000 + "0B0\n",
        ",".join(f"{s}F{m}" for s in range(150) for m in range(s)) + ",0F0\n",
        "".join(f"{s}F0,{s}B0,{s}B0\n" for s in range(3000)),
    ],
)
def test_a_hostile_file_is_judged_at_once(text):
    report = check_rows(parse_rows(text))
    assert 0 < len(report.faults) <= MOST_FAULTS
    assert len(grid(parse_rows(text), report.faults)) < 10_000


def test_the_grid_marks_the_faulty_cell():
    rows = parse_rows("0F0,0F1,0B0,0B1\n1F1,1B0,1F1,1B1\n")
    assert grid(rows, check_rows(rows).faults) == (
        "position  0    1           2      3\n"
        "rank 0    0F0  0F1         0B0    0B1\n"
        "rank 1    1F1  >?1F0 1B0<  >1F1<  1B1"
    )
    assert grid(rows, ()) == ""


def test_an_input_gradient_in_older_writing_is_told():
    """PyTorch's zb1p artifact once wrote B and W for what it writes I and W now; "the same backward
    stands there in halves as well" helped nobody to see that."""
    report = check(_schedule("0F0 0F1 0B0 0W0 0B1 0W1", "1F0 1I0 1B0 1W0 1F1 1B1"))
    assert [(f.rank, f.action) for f in report.faults] == [(0, "0B0"), (0, "0B1"), (1, "1B0")]
    assert "0W0 stands there as well; the input gradient, an older B" in report.faults[0].fault
    assert "in halves" in report.faults[2].fault
