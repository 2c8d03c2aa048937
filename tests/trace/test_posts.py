"""Sends and receives that one kernel carries in a batch, and where that cannot be told."""

import pytest
from tests.trace.cuda_traces import write_batched
from tests.trace.megascan_traces import timetable

from unbubble.attribution import attribute
from unbubble.trace import read

US = 1_000
TRANSFER = 50
M = 6
TIMES = [(1000, 2000), (1100, 2100), (1000, 2000), (1600, 2900)]


@pytest.fixture
def rows():
    return timetable(TIMES, M, TRANSFER)


@pytest.mark.parametrize("alone", [True, False], ids=["Megatron's", "PyTorch's"])
def test_a_batch_with_one_rank_is_its_transfers(tmp_path, rows, alone):
    """Its kernel is launched by none of its sends and receives, and no transfer could be told;
    where single ones launched their own, the step had no classes at all."""
    (pipeline,) = read([write_batched(tmp_path, rows, alone=alone)]).pipelines
    assert pipeline.unknown == ()
    assert len(pipeline.pairs) == 2 * 3 * M
    for transfer in pipeline.timeline.transfers:
        assert transfer.end - transfer.start == TRANSFER * US
    for row, done, (f, b) in zip(attribute(pipeline.timeline).ranks, rows, TIMES, strict=True):
        assert row.compute - row.optimizer == M * (f + b) * US
        assert sum(one[3] - one[2] for one in done if "ward" in one[0]) == M * (f + b)


def test_a_batch_ends_with_its_last_transfer(tmp_path, rows):
    """When each of several arrived is only bounded by the end of their kernel."""
    (pipeline,) = read([write_batched(tmp_path, rows)]).pipelines
    arrived = [receive.arrived for *_, receive in pipeline.pairs]
    single = sum(name.startswith("recv") and took is not None
                 for row in rows for name, *_, took in row)  # fmt: skip
    assert (arrived.count(True), len(arrived)) == (single, 2 * 3 * M)


@pytest.mark.parametrize(
    "peer",
    [lambda *_: None, lambda rank, direction, by: {"send": 2, "recv": 0}[direction]],
    ids=["not named", "several"],
)
def test_a_batch_with_several_ranks_is_told(tmp_path, rows, peer):
    """Its kernel waits for all of them, as where an interleaved schedule sends on and receives."""
    (pipeline,) = read([write_batched(tmp_path, rows, peer=peer)]).pipelines
    assert pipeline.pairs == ()
    assert any("a batch of transfers with several ranks, or" in text for text in pipeline.unknown)
    assert pipeline.timeline is not None  # the actions are what they were


def test_what_is_not_right_behind_its_posts_is_no_batch_of_theirs(tmp_path, rows):
    (pipeline,) = read([write_batched(tmp_path, rows, between=True)]).pipelines
    assert pipeline.pairs == ()
    assert any("not right behind the sends and receives" in text for text in pipeline.unknown)
