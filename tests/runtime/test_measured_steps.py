"""From the ranks' records to Timelines, on records written by hand."""

import pytest
from msgspec.structs import replace

from unbubble import Placement
from unbubble.action import parse
from unbubble.runtime.measured import PipelineResult, RankRecord, measured
from unbubble.trace import read
from unbubble.trace.assembly import NO_RECOMPUTE
from unbubble.trace.recorded import Columns

MS = 10**6
FIRST = RankRecord(
    actions=["0F0", "0SEND_F0", "0RECV_B0", "0B0"],
    steps=[
        Columns(
            begin=100 * MS,
            waits=[0, 0, 0, 25 * MS],
            times=[10 * MS, 1 * MS, 1 * MS, 23 * MS],
            own=[9 * MS, 0, 0, 20 * MS],
        )
    ],
    optimizer=[3 * MS],
)
SECOND = RankRecord(
    actions=["1RECV_F0", "1F0", "1B0", "1SEND_B0"],
    steps=[
        Columns(
            begin=99 * MS,
            waits=[0, 12 * MS, 0, 0],
            times=[2 * MS, 9 * MS, 14 * MS, 2 * MS],
            own=[0, 8 * MS, 13 * MS, 0],
        )
    ],
    optimizer=[2 * MS],
    losses=[1.5],
)
RESULT = PipelineResult(ranks=[FIRST, SECOND], gradients=None)
PLACEMENT = Placement((0, 1))


def shifted(record, by):
    return replace(record, steps=[s._replace(begin=s.begin + by) for s in record.steps])


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
def test_clocks_of_two_machines_are_aligned_by_what_they_sent(by, tmp_path):
    apart = PipelineResult(ranks=[FIRST, shifted(SECOND, by)], gradients=None)
    found = measured(apart, PLACEMENT, "x")
    [step] = found.steps
    starts = {str(e.action): e.start for r in range(2) for e in step.events(r)}
    assert starts["0SEND_F0"] <= starts["1F0"]
    assert starts["1SEND_B0"] <= starts["0B0"]
    # the offset lies between the two orders, 3 ms and 1 ms off the truth
    assert found.clock_uncertainty_s == pytest.approx(0.002)
    # the run's recording was read back as of clocks that agree to 0 s
    found.save(tmp_path / "run.json")
    (pipeline,) = read([tmp_path / "run.json"]).pipelines
    assert pipeline.clocks.uncertainty == 2 * MS
    assert pipeline.unknown == (str(NO_RECOMPUTE),)


def test_a_wait_in_the_middle_of_a_pair_moves_no_clock():
    # its start is after all of its wait, and what it waited for was sent later than that: the
    # clocks of one machine were moved against each other for it
    first = RankRecord(
        actions=["0F0", "0SEND_F0", "0RECV_B0", "(0F1;0B0)OVERLAP_F_B"],
        steps=[Columns(0, [0, 0, 0, 5 * MS], [10 * MS, 0, 0, 30 * MS], [10 * MS, 0, 0, 30 * MS])],
        optimizer=[0],
    )
    second = RankRecord(
        actions=["1RECV_F0", "1F0", "1B0", "1SEND_B0"],
        steps=[Columns(0, [0, 10 * MS, 0, 0], [0, 5 * MS, 4 * MS, MS], [0, 5 * MS, 4 * MS, 0])],
        optimizer=[0],
    )
    result = PipelineResult(ranks=[first, second], gradients=None)
    found = measured(result, PLACEMENT, "x")
    assert found.clock_uncertainty_s == 0
    [step] = found.steps
    assert step.starts[0][-1] == 15 * MS
    assert step.transfers[-1].end <= 15 * MS
