"""What a recorder took, as observations: actions, and when what they waited for arrived."""

import pytest

from unbubble import InputError
from unbubble.action import parse
from unbubble.schedule import Placement, Schedule
from unbubble.trace.clocks import Clocks
from unbubble.trace.doubts import doubts
from unbubble.trace.observed import About
from unbubble.trace.pairing import pairs
from unbubble.trace.recorded import Columns, Recorded
from unbubble.trace.timeline import timeline_of

MS = 10**6


def observe(actions, columns):
    order = Recorded(map(parse, actions))
    seen = order.seen(columns)
    return seen, order.halves(seen, columns)


def test_an_action_begins_after_its_wait():
    columns = Columns(begin=7, waits=[0, 20], times=[10, 30], own=[10, 25])
    seen, halves = observe(["0F0", "0B0"], columns)
    assert [(str(one.action), one.start, one.end, one.overhead) for one in seen] == [
        ("0F0", 7, 17, 0),
        ("0B0", 37, 67, 5),
    ]
    assert halves == []


@pytest.mark.parametrize("user", ["1I0", "1B0", "(1F1;1B0)OVERLAP_F_B"])
def test_a_gradient_arrives_when_the_backward_goes_on_not_its_weights(user):
    # the weight gradient, which came last, was once taken for what had waited
    columns = Columns(begin=0, waits=[0, 3 * MS, 0], times=[5, 10, 10], own=[0, 10, 10])
    _, [half] = observe(["1RECV_B0", user, "1W0"], columns)
    start, end = 5 + 3 * MS, 15 + 3 * MS
    assert (half.called, half.posted, half.used) == (0, 5, start)
    # a pair may have waited in its middle: for certain the gradient was there only at its end
    assert (half.done, half.arrived) == (end if "OVERLAP" in user else start, True)


def test_a_pair_waited_for_the_input_that_was_posted_last():
    # with both taken for late, every early activation was a transfer as long as the gradient's wait
    columns = Columns(begin=0, waits=[0, 0, 3 * MS], times=[5, 5, 10], own=[0, 0, 10])
    actions = ["1RECV_F1", "1RECV_B0", "(1F1;1B0)OVERLAP_F_B"]
    _, [activation, gradient] = observe(actions, columns)
    assert (activation.arrived, gradient.arrived) == (False, True)
    assert activation.used == gradient.used == 10 + 3 * MS


def test_an_action_that_did_not_wait_tells_when_its_input_was_there_at_the_latest():
    columns = Columns(begin=0, waits=[0, 900], times=[5, 10], own=[0, 10])
    _, [half] = observe(["1RECV_F0", "1F0"], columns)
    assert (half.done, half.arrived, half.used) == (915, False, 905)


@pytest.mark.parametrize(
    ("waits", "own"), [([0, -1], [0, 1]), ([0, 0], [0, 11]), ([0, 0], [0, -1])]
)
def test_columns_that_contradict_themselves_are_refused(waits, own):
    with pytest.raises(InputError, match="1F0 waits"):
        observe(["1RECV_F0", "1F0"], Columns(begin=0, waits=waits, times=[5, 10], own=own))


def joined(*ranks):
    """The Timeline of what ranks recorded, stage r on rank r, and what is doubtful about it."""
    orders = [Recorded(map(parse, actions)) for actions, _ in ranks]
    rows = [order.seen(columns) for order, (_, columns) in zip(orders, ranks, strict=True)]
    halves = [o.halves(row, c) for o, row, (_, c) in zip(orders, rows, ranks, strict=True)]
    schedule = Schedule.of([order.actions for order in orders], Placement(tuple(range(len(ranks)))))
    clocks = Clocks(offsets=(0,) * len(ranks), uncertainty=0)
    found = pairs(halves)
    timeline = timeline_of(schedule, rows, found, clocks)
    return timeline, [d for d in doubts(timeline, [], found, clocks) if d.about is About.ORDER]


def test_what_a_rank_did_before_its_input_was_sent_cost_nothing():
    """Rank 1 collected garbage for 5 ms and found its input there, sent 4 ms after it had begun.

    The action was said to begin before its input was made, and all of the 5 ms were its overhead.
    """
    timeline, doubtful = joined(
        (["0F0", "0SEND_F0"], Columns(0, [0, 0], [4 * MS, MS], [4 * MS, 0])),
        (["1RECV_F0", "1F0"], Columns(0, [0, 0], [0, 7 * MS], [0, 2 * MS])),
    )
    start, end = timeline.starts[1][1], timeline.ends[1][1]
    assert (start, end, timeline.overhead[1][1]) == (4 * MS, 7 * MS, MS)
    assert [(t.start, t.end) for t in timeline.transfers] == [(4 * MS, 4 * MS)]
    assert doubtful == []


def test_the_second_input_of_a_pair_may_be_made_after_the_pair_began():
    first = (["0F1", "0SEND_F1"], Columns(0, [0, 0], [MS, 0], [MS, 0]))
    pair = ["1RECV_F1", "1RECV_B0", "(1F1;1B0)OVERLAP_F_B"]
    second = (pair, Columns(0, [0, 0, 8 * MS], [0, 0, 4 * MS], [0, 0, 4 * MS]))
    third = (["2F0", "2B0", "2SEND_B0"], Columns(0, [0] * 3, [5 * MS, 5 * MS, 0], [MS, MS, 0]))
    timeline, doubtful = joined(first, second, third)
    assert timeline.ends[2][1] > timeline.starts[1][2]
    assert doubtful == []
