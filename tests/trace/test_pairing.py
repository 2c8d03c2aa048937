"""Pairs of ends: the time on the wire where nobody waited for it."""

import pytest

from unbubble.action import Action, Kind, receive_of
from unbubble.trace.observed import HalfTransfer
from unbubble.trace.pairing import pairs, transfers

# between which ranks, on the wire for how long, and whether the receiver waited for it
FEW = [((0, 1), 90, True)]
MANY = [((0, 1), 9, True)] * 8
ELSEWHERE = [((2, 3), 30, True)] * 3


@pytest.mark.parametrize(
    ("others", "usual"),
    [(FEW + ELSEWHERE, 30), (MANY + ELSEWHERE * 9, 9), (ELSEWHERE, 30), ([], 1000)],
    ids=["few between the two", "enough between the two", "only elsewhere", "none"],
)
def test_a_transfer_that_nobody_waited_for_takes_the_usual_time(others, usual):
    halves = [[] for _ in range(4)]
    for number, ((source, destination), time, waited) in enumerate(
        [((0, 1), 1000, False), *others]
    ):
        send = Action(Kind.SEND_F, source, number)
        halves[source].append(HalfTransfer(send, 0, 5, 5, False))
        halves[destination].append(HalfTransfer(receive_of(send), 0, 1, 5 + time, waited))
    found = transfers(pairs(halves), [0] * 4)
    times = {t.action.microbatch: t.end - t.start for t in found}
    assert times[0] == usual
    assert [times[i] for i in range(1, len(times))] == [time for _, time, _ in others]


def test_nothing_arrives_after_what_used_it_began():
    send = Action(Kind.SEND_F, 0, 0)
    one = HalfTransfer(send, 0, 5, 5, False)
    other = HalfTransfer(receive_of(send), 0, 1, 9, False, used=3)
    [found] = transfers(pairs([[one], [other]]), [100, 100])
    assert (found.start, found.end) == (103, 103)
