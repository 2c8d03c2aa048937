"""What transfers wait for, by hand: their two ends, their link, their stream, their ranks."""

import pytest

from unbubble.costs import Costs, Duration, Edge, StageCosts
from unbubble.errors import InputError
from unbubble.schedule import Schedule
from unbubble.simulate import Deadlock, simulate

FORWARDS = [["0F0", "0SEND_F0", "0F1", "0SEND_F1"], ["1RECV_F0", "1RECV_F1", "1F0", "1F1"]]
"""Two forwards of time 1 below, each sent in time 3; both receives are posted at once."""


def costs(stages=2, **more):
    one = StageCosts(forward=Duration(1), backward=Duration(2))
    return Costs(stages=(one,) * stages, edge=Edge(latency=3), **more)


def wires(timeline):
    return {str(t.action): (t.start, t.end) for t in timeline.transfers}


@pytest.mark.parametrize(
    ("channel", "second"), [("unlimited", (2, 5)), ("link", (4, 7)), ("pair", (4, 7)),
                            ("rank", (4, 7))],
)  # fmt: skip
def test_one_at_a_time_on_a_link(channel, second):
    found = wires(simulate(Schedule.of(FORWARDS), costs(channel=channel)))
    assert found == {"0SEND_F0": (1, 4), "0SEND_F1": second}


@pytest.mark.parametrize("channel", ["unlimited", "link", "pair"])
def test_the_way_back_waits_for_nobody(channel):
    rows = [["0F0", "0SEND_F0", "0RECV_B0", "0B0"], ["1RECV_F0", "1F0", "1B0", "1SEND_B0"]]
    found = wires(simulate(Schedule.of(rows), costs(channel=channel, send_host=1)))
    assert found == {"0SEND_F0": (2, 5), "1SEND_B0": (9, 12)}


def test_a_receive_posted_early_holds_up_the_sends_behind_it_on_its_stream():
    """Rank 1 posts its receive of a gradient before it sends the other activation on: with a
    communicator a pair that waits behind it, posted in the order of use it does not."""
    early = [
        ["0F0", "0SEND_F0", "0F1", "0SEND_F1", "0RECV_B0", "0B0"],
        [
            "1RECV_F0",
            "1RECV_F1",
            "1F0",
            "1SEND_F0",
            "1RECV_B0",
            "1F1",
            "1SEND_F1",
            "1B0",
            "1SEND_B0",
        ],
        ["2RECV_F0", "2RECV_F1", "2F0", "2F1", "2B0", "2SEND_B0"],
    ]
    late = [list(row) for row in early]
    late[1].remove("1RECV_B0")
    late[1].insert(late[1].index("1B0"), "1RECV_B0")
    free = wires(simulate(Schedule.of(early), costs(3)))
    assert wires(simulate(Schedule.of(late), costs(3))) == free
    assert wires(simulate(Schedule.of(late), costs(3, channel="pair")))["1SEND_F1"] == (8, 11)
    with pytest.raises(Deadlock):  # rank 2 posts the second receive before the gradient it sends
        simulate(Schedule.of(early), costs(3, channel="pair"))


def test_a_stream_a_rank_serialises_both_directions():
    rows = [
        ["0F0", "0SEND_F0", "0F1", "0SEND_F1"],
        ["1RECV_F0", "1F0", "1RECV_F1", "1SEND_F0", "1F1", "1SEND_F1"],
        ["2RECV_F0", "2RECV_F1", "2F0", "2F1"],
    ]
    pair = wires(simulate(Schedule.of(rows), costs(3, channel="pair")))
    rank = wires(simulate(Schedule.of(rows), costs(3, channel="rank")))
    assert pair == {"0SEND_F0": (1, 4), "0SEND_F1": (5, 8), "1SEND_F0": (5, 8), "1SEND_F1": (9, 12)}
    # rank 1's first send waits behind the receive that it posted before
    assert rank == {
        "0SEND_F0": (1, 4),
        "0SEND_F1": (5, 8),
        "1SEND_F0": (8, 11),
        "1SEND_F1": (11, 14),
    }


def test_streams_that_wait_for_each_other_are_named():
    rows = [
        ["0F0", "0RECV_B0", "0SEND_F0", "0B0"],
        ["1RECV_F0", "1F0", "1B0", "1SEND_B0"],
    ]
    assert simulate(Schedule.of(rows), costs()).finish == 1 + 3 + 1 + 2 + 3 + 2
    with pytest.raises(Deadlock, match="0B0 on rank 0, 1F0 on rank 1") as stuck:
        simulate(Schedule.of(rows), costs(channel="pair"))
    assert stuck.value.blocked == ((0, 3), (1, 1))


def test_transfers_that_hold_their_ranks():
    timeline = simulate(Schedule.of(FORWARDS), costs(overlap=False, send_host=1, recv_host=2))
    shown = [[(str(e.action), e.start, e.end) for e in timeline.events(r)] for r in range(2)]
    assert shown == [
        [("0F0", 0, 1), ("0SEND_F0", 1, 5), ("0F1", 5, 6), ("0SEND_F1", 6, 10)],
        [("1RECV_F0", 0, 5), ("1RECV_F1", 5, 10), ("1F0", 10, 11), ("1F1", 11, 12)],
    ]
    assert wires(timeline) == {"0SEND_F0": (2, 5), "0SEND_F1": (7, 10)}


def test_ranks_that_both_send_first_wait_for_ever_where_sends_block():
    rows = [
        ["0F0", "0SEND_F0", "0RECV_B0", "0B0"],
        ["1RECV_F0", "1F0", "1B0", "1SEND_B0"],
    ]
    assert simulate(Schedule.of(rows), costs(overlap=False)).finish == 12
    rows[0] = ["0RECV_B0", "0F0", "0SEND_F0", "0B0"]
    with pytest.raises(Deadlock) as stuck:
        simulate(Schedule.of(rows), costs(overlap=False))
    assert stuck.value.blocked == ((0, 0), (1, 0))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["0F0", "0SEND_F0"], ["1F0"]], "0SEND_F0 on rank 0 waits for an action of stage 1"),
        ([["0F0"], ["1RECV_F0", "1F0"]], "1F0 on rank 1 waits"),
        ([["0F0", "0SEND_F0", "0SEND_F0"], ["1RECV_F0", "1F0"]], "stands in the schedule twice"),
        ([["0F0", "0RECV_F0"]], "0RECV_F0 on rank 0 leads to no other rank"),
        ([["0F0", "0SEND_F0"]], "0SEND_F0 on rank 0 leads to no other rank"),
        ([["0F0", "0SEND_B0"], ["1F0"]], "0SEND_B0 on rank 0 waits for an action of stage 0"),
        ([["0F0"], ["1F0", "1SEND_F0"]], "1F0 on rank 1 waits"),
    ],
)
def test_sends_and_receives_that_do_not_match(rows, message):
    with pytest.raises(InputError, match=message):
        simulate(Schedule.of(rows), costs(len(rows)))
