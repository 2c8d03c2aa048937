"""Idle gaps and their causes: on drawn cases by hand, in general by their definition."""

from dataclasses import replace

import pytest
from tests.report.timelines import every_kind, gpipe, virtual

from unbubble.schedule import Schedule
from unbubble.schedule.inputs import inputs
from unbubble.simulate import waits


def seen(timeline):
    return [
        (w.rank, w.start, w.end, str(w.action), str(w.cause), w.cause_rank, w.by_transfer)
        for w in waits(timeline)
    ]


def test_inputs_are_the_actions_before_on_the_way_of_a_microbatch():
    rows = [["0F0", "(0F1;0I0)OVERLAP_F_B", "0W0", "0B1"], ["1F0", "1I0", "1F1", "1W0", "1B1"]]
    schedule = Schedule.of(rows)
    codes = [str(a) for rank in range(2) for x in schedule.actions(rank) for a in x.parts]
    source = [codes[i] if i >= 0 else "" for i in inputs(schedule)]
    assert dict(zip(codes, source, strict=True)) == {
        "0F0": "", "0F1": "", "0I0": "1I0", "0W0": "0I0", "0B1": "1B1",
        "1F0": "0F0", "1I0": "1F0", "1F1": "0F1", "1W0": "1I0", "1B1": "1F1",
    }  # fmt: skip


def test_copies_of_the_model_do_not_feed_each_other():
    from unbubble.schedule.placement import bidirectional

    schedule = Schedule.of([["0F0", "3F1"], ["1F0", "2F1"]], bidirectional(2))
    assert list(inputs(schedule)) == [-1, 3, 0, -1]


def test_a_gap_names_the_action_on_the_other_rank():
    # rank 0  0 1 . . 2+a+a b B . c c
    # rank 1  . 0 a a 1 b B 2 c c . .
    assert seen(every_kind()) == [
        (0, 2, 4, "(0F2;0B0)OVERLAP_F_B", "1B0", 1, False),
        (0, 9, 10, "0B2", "1B2", 1, False),
        (1, 0, 1, "1F0", "0F0", 0, False),
    ]


def test_a_gap_that_ends_with_an_arrival_names_the_transfer():
    assert seen(virtual())[0] == (0, 2, 6, "2F0", "1F0", 1, True)


def test_a_gap_with_every_input_there_has_no_cause():
    timeline = gpipe(2, 2)
    late = tuple(row[:] for row in timeline.starts)
    late[0][1] += 1  # 0F1 begins later than its rank was free, and its input is data
    ends = tuple(row[:] for row in timeline.ends)
    ends[0][1] += 1
    assert seen(replace(timeline, starts=late, ends=ends))[0] == (0, 1, 2, "0F1", "None", -1, False)


@pytest.mark.parametrize("timeline", [every_kind(), virtual(), gpipe(5, 3, p2p=2), gpipe(1, 4)])
def test_gaps_and_work_fill_each_rank_up_to_its_last_action(timeline):
    for rank in range(timeline.ranks):
        idle = sum(w.end - w.start for w in waits(timeline) if w.rank == rank)
        assert idle + timeline.work[rank] == timeline.ends[rank][-1] - timeline.begin
