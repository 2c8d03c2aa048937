"""Lowering: PyTorch's own passes are the oracle of "early"; all of them pass the check."""

from dataclasses import replace
from itertools import islice

import pytest

from unbubble.action import JOINED
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import family
from unbubble.schedule import Schedule
from unbubble.schedule.check import check
from unbubble.schedule.lowering import RECEIVES, compute_only, lower
from unbubble.schedule.whole_stage import for_pytorch
from unbubble.simulate import simulate

GRID = [
    (name, p, m, v)
    for name, many in [
        ("GPipe", (1,)),
        ("Interleaved1F1B", (2, 3)),
        ("LoopedBFS", (2, 3)),
        ("InterleavedZeroBubble", (2, 3)),
        ("ZBVZeroBubble", (2,)),
        ("DualPipeV", (2,)),
    ]
    for v in many
    for p in (1, 2, 3, 4)
    for m in (1, 2, 4, 8)
]


def _pytorch(name, p, m, v):
    """PyTorch's compute-only order, or None where its class refuses the numbers."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    try:
        rows = get_schedule_ops(name, p, m, v)
    except (ValueError, AssertionError, KeyError, RuntimeError):
        return None
    return [[a for a in row if a is not None and a.is_compute_op] for row in rows]


@pytest.fixture(scope="module")
def built_in():
    orders = {key: _pytorch(*key) for key in GRID}
    return {key: order for key, order in orders.items() if order is not None}


def test_early_is_the_order_of_pytorchs_own_passes(built_in):
    from torch.distributed.pipelining import schedules

    assert len(built_in) > 100
    for key, rows in built_in.items():
        schedule = Schedule.of([map(str, row) for row in rows])
        rank_of = dict(enumerate(schedule.placement.rank_of))
        theirs = {
            rank: schedules._add_reduce_grad(schedules._add_unshard_reshard(list(row)), key[2])
            for rank, row in enumerate(rows)
        }
        theirs = schedules._add_send_recv(theirs, rank_of.__getitem__, schedule.num_stages)
        lowered = for_pytorch(schedule)
        for rank in range(schedule.ranks):
            assert list(map(str, lowered.actions(rank))) == list(map(str, theirs[rank])), key


def test_every_lowering_of_a_built_in_order_is_complete(built_in):
    for key, rows in built_in.items():
        schedule = Schedule.of([map(str, row) for row in rows])
        for receive in RECEIVES:
            lowered = lower(schedule, receive)
            assert compute_only(lowered) == schedule
            send = "buffered" if receive == "just-in-time" else "blocking"
            assert check(lowered, send).good, (key, receive)
            assert check(for_pytorch(schedule, receive), send).good, (key, receive)


def test_a_schedule_that_can_never_finish_is_refused():
    stuck = Schedule.of([["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]])
    for receive in ("early", "smart", "rendezvous"):
        with pytest.raises(InputError, match="can never finish"):
            lower(stuck, receive)


def test_a_lowered_schedule_is_not_lowered_again():
    schedule = Schedule.of([["0F0", "0B0"], ["1F0", "1B0"]])
    with pytest.raises(InputError, match="already"):
        lower(lower(schedule))
    with pytest.raises(InputError, match="early, just-in-time, smart, rendezvous"):
        lower(schedule, "late")


def _begin(schedule):
    return " ".join(map(str, islice(schedule.actions(0), 6)))


def test_smart_does_not_hold_up_a_rank_that_sends_on_the_stream_it_receives_on():
    """pytorch#188833: in an interleaved warm-up PyTorch posts the receives of stage 8 between the
    sends of stage 0, where they wait for the whole first round."""
    schedule = family("interleaved-1f1b").generate(8, 16, 2)
    early, smart = lower(schedule), lower(schedule, "smart")
    assert _begin(early) == "0F0 0SEND_F0 8RECV_F0 0F1 0SEND_F1 8RECV_F1"
    assert _begin(smart) == "0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2"
    even = Costs.uniform(schedule.placement, forward=2, backward_input=2, backward_weight=2)
    free = simulate(schedule, even).makespan
    stream = replace(even, channel="rank")
    assert simulate(smart, stream).makespan == free
    assert simulate(early, stream).makespan > 1.1 * free


def test_rendezvous_suits_transfers_that_hold_their_ranks():
    for name in ("1f1b", "zb-h1", "zb-v", "looped-bfs", "dualpipe-v"):
        schedule = family(name).generate(4, 8)
        even = Costs.uniform(schedule.placement)
        costs = replace(even, overlap=False)
        held = simulate(lower(schedule, "rendezvous"), costs).makespan
        assert held <= simulate(lower(schedule), costs).makespan
        if name != "dualpipe-v":  # whose pairs are out of step with their neighbours
            assert held == simulate(schedule, even).makespan


@pytest.mark.parametrize("receive", RECEIVES)
def test_half_a_pair_at_the_end_of_a_row_is_lowered_as_it_stands(receive):
    """Rows of codes may end in a code that says "joined with the next": a place behind the row was
    looked at."""
    whole = Schedule.of([["0F0", "0B0"], ["1F0", "1B0"]])
    half = whole.with_rows([row[:-1] + type(row)("q", [row[-1] | JOINED]) for row in whole.codes])
    assert compute_only(lower(half, receive)) == half
