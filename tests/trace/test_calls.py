"""Collectives that ranks of several pipelines make together."""

from unbubble.action import Action, Kind
from unbubble.trace.calls import ABSENT, without_late_members
from unbubble.trace.observed import Busy, Observed, Seen


def rank(number, start, end, members=2):
    call = Seen(Action(Kind.REDUCE_GRAD, -1), start, end, group="of 0, 4", members=members)
    busy = Busy(0, end - start, 0)
    return Observed(
        rank=number, source="", step=0, begin=start, finish=end, busy=busy, tail=(call,)
    )


def test_a_call_lasts_as_long_as_for_its_last_member():
    """Within a pipeline only its own ranks were looked at, so the wait for another replica was
    communication. The second machine's clock is a million behind."""
    found = without_late_members([rank(0, 2_000_100, 2_000_900), rank(4, 1_000_700, 1_000_900)])
    assert [(one.tail[0].start, one.tail[0].end) for one in found] == [
        (2_000_700, 2_000_900), (1_000_700, 1_000_900),
    ]  # fmt: skip
    assert not any(one.unknown for one in found)


def test_a_member_without_a_trace_is_told():
    found = without_late_members([rank(0, 100, 900, members=3), rank(4, 700, 900, members=3)])
    assert [one.tail[0].start for one in found] == [700, 700]
    assert all(one.unknown == (ABSENT,) for one in found)
    assert without_late_members([rank(0, 100, 900, members=0)]) == [rank(0, 100, 900, members=0)]
