"""From the ranks' records to Timelines, on records written by hand."""

import pytest

from unbubble import Placement
from unbubble.action import parse
from unbubble.runtime.measured import PipelineResult, RankSteps, measured

MS = 10**6
FIRST = RankSteps(
    actions=["0F0", "0SEND_F0", "0RECV_B0", "0B0"],
    begins=[100 * MS],
    ends=[[110 * MS, 111 * MS, 112 * MS, 160 * MS]],
    waits=[[0, 0, 0, 25 * MS]],
    computes=[[9 * MS, 0, 0, 20 * MS]],
    optimizer=[3 * MS],
)
SECOND = RankSteps(
    actions=["1RECV_F0", "1F0", "1B0", "1SEND_B0"],
    begins=[99 * MS],
    ends=[[101 * MS, 122 * MS, 136 * MS, 138 * MS]],
    waits=[[0, 12 * MS, 0, 0]],
    computes=[[0, 8 * MS, 13 * MS, 0]],
    optimizer=[2 * MS],
    losses=[1.5],
)
RESULT = PipelineResult(ranks=[FIRST, SECOND], gradients=None)
PLACEMENT = Placement((0, 1))


def shifted(record, by):
    return RankSteps(
        actions=record.actions,
        begins=[begin + by for begin in record.begins],
        ends=[[end + by for end in step] for step in record.ends],
        waits=record.waits,
        computes=record.computes,
        optimizer=record.optimizer,
    )


def test_an_action_starts_after_its_wait():
    [step] = measured(RESULT, PLACEMENT, "x").steps
    events = {str(e.action): (e.start / MS, e.end / MS) for r in range(2) for e in step.events(r)}
    assert events == {
        "0F0": (1, 11),
        "0SEND_F0": (11, 12),
        "0RECV_B0": (12, 13),
        "0B0": (38, 61),
        "1RECV_F0": (0, 2),
        "1F0": (14, 23),
        "1B0": (23, 37),
        "1SEND_B0": (37, 39),
    }
    assert (step.begin, step.finish) == (0, 61 * MS)
    assert [o / MS for o in step.overhead[0]] == [1, 1, 1, 3]
    assert [o / MS for o in step.overhead[1]] == [2, 1, 1, 2]


def test_a_transfer_lasts_from_the_later_post_to_the_arrival():
    [step] = measured(RESULT, PLACEMENT, "x").steps
    forward, backward = sorted(step.transfers, key=lambda t: t.start)
    assert forward == (parse("0SEND_F0"), 0, 1, 12 * MS, 14 * MS)
    # used before the call that sent it returned
    assert backward == (parse("1SEND_B0"), 1, 0, 38 * MS, 38 * MS)


def test_the_figures_beside_the_steps():
    found = measured(RESULT, PLACEMENT, "x")
    assert found.step_times_s == (0.061,)
    assert found.optimizer_s == (0.003,)
    assert found.losses == (1.5,)
    assert found.clock_uncertainty_s == 0


@pytest.mark.parametrize("by", [10**12, -(10**12), 40 * MS])
def test_clocks_of_two_machines_are_aligned_by_what_they_sent(by):
    apart = PipelineResult(ranks=[FIRST, shifted(SECOND, by)], gradients=None)
    found = measured(apart, PLACEMENT, "x")
    [step] = found.steps
    starts = {str(e.action): e.start for r in range(2) for e in step.events(r)}
    assert starts["0SEND_F0"] <= starts["1F0"]
    assert starts["1SEND_B0"] <= starts["0B0"]
    # the offset lies between the two orders, 3 ms and 1 ms off the truth
    assert found.clock_uncertainty_s == pytest.approx(0.002)
