"""Traces of devices: kernels linked by correlation, the SendRecv trap, clocks apart by seconds."""

import pytest
from tests.trace.cuda_traces import REDUCE, Writer, write_cuda

from unbubble.action import Kind
from unbubble.attribution import attribute
from unbubble.costs import Costs, Duration, Edge, StageCosts
from unbubble.families import generate
from unbubble.simulate import simulate
from unbubble.trace import read

US = 1_000


def costs(stages, edge=0, slow=None):
    return Costs(
        stages=tuple(
            StageCosts(
                forward=Duration((150 if s == slow else 100) * US),
                backward_input=Duration(90 * US),
                backward_weight=Duration(110 * US),
            )
            for s in range(stages)
        ),
        edge=Edge(latency=edge),
        unit="s",
        ticks_per_unit=10**9,
    )


@pytest.fixture
def simulated():
    def call(name="1f1b", ranks=4, microbatches=6, virtual=None, edge=12 * US, slow=None):
        order = generate(name, ranks, microbatches, virtual)
        return simulate(order, costs(order.num_stages, edge, slow))

    return call


@pytest.mark.parametrize(
    ("name", "ranks", "virtual"), [("1f1b", 4, None), ("zb-v", 2, None), ("interleaved-1f1b", 2, 2)]
)
def test_the_kernels_are_the_actions(tmp_path, simulated, name, ranks, virtual):
    timeline = simulated(name, ranks, 6, virtual, slow=1)
    (pipeline,) = read([write_cuda(tmp_path, timeline)]).pipelines
    assert pipeline.unknown == ()
    found = pipeline.timeline
    assert found.schedule.codes == timeline.schedule.codes
    assert found.starts == timeline.starts
    assert found.ends == timeline.ends
    assert attribute(found).ranks == attribute(timeline).ranks


def test_collectives_inside_actions_are_communication(tmp_path, simulated):
    timeline = simulated()
    trace = read([write_cuda(tmp_path, timeline, comm=20 * US)])
    (pipeline,) = trace.pipelines
    rows, plain = attribute(pipeline.timeline), attribute(timeline)
    actions = 2 * timeline.schedule.microbatches
    for row, before in zip(rows.ranks, plain.ranks, strict=True):
        assert row.compute == before.compute - actions * 20 * US
        assert row.communication > before.communication
        assert row.overhead == before.overhead == 0


def test_clocks_that_are_seconds_apart_are_aligned(tmp_path, simulated):
    timeline = simulated(edge=12 * US)
    offsets = {1: 3_000_000_000, 2: -7_500_000_000, 3: 41}
    (pipeline,) = read([write_cuda(tmp_path, timeline, offsets=offsets)]).pipelines
    clocks = pipeline.clocks
    assert clocks.contradiction == 0
    for rank, apart in offsets.items():
        assert abs(clocks.offsets[rank] + apart) <= clocks.uncertainty
    assert clocks.uncertainty <= 3 * 12 * US  # three hops, each bounded by a transfer
    T = timeline.finish - timeline.begin
    for own, true in zip(
        attribute(pipeline.timeline).ranks, attribute(timeline).ranks, strict=True
    ):
        assert own.compute == true.compute
        for part in ("bubble", "imbalance_static", "communication", "overhead"):
            assert abs(getattr(own, part) - getattr(true, part)) <= 2 * clocks.uncertainty < T / 10


def test_a_missing_rank_is_named_and_no_number_given(tmp_path, simulated):
    for missing in range(4):
        folder = tmp_path / str(missing)
        folder.mkdir()
        write_cuda(folder, simulated())
        (folder / f"rank{missing}.json").unlink()
        (pipeline,) = read([folder]).pipelines
        assert pipeline.timeline is None
        assert "missing" in " ".join(pipeline.unknown)


def tail_traces(folder, *, members):
    """Two ranks whose step ends with an all-reduce and an optimizer; rank 1 comes 40 µs later."""
    for rank, late in ((0, 0), (1, 40 * US)):
        writer = Writer(rank, 2)
        for kind, at in zip("FB", ((0, 360 * US), (100 * US, 200 * US))[rank], strict=True):
            writer.range(f"PP:{rank}{kind}0", [("gemm", at, at + 50 * US, 7, {})])
        begin = 450 * US + late
        more = {"Collective name": "allreduce"}
        if members:
            more["Process Group Ranks"] = "[0, 1]"
        writer.launch(REDUCE, begin, 510 * US, 20, **more)
        writer.range("Optimizer.step#Adam.step", [("adam", 510 * US, 530 * US, 7, {})])
        writer.write(folder, host_name="box")
    return folder


def test_collectives_at_the_end_count_from_their_last_member(tmp_path):
    (pipeline,) = read([tail_traces(tmp_path, members=True)]).pipelines
    reduces = [
        event
        for rank in range(2)
        for event in pipeline.timeline.events(rank)
        if event.action.kind is Kind.REDUCE_GRAD
    ]
    assert {event.end - event.start for event in reduces} == {20 * US}
    assert not any(reason.startswith("tail") for reason in pipeline.unknown)
    assert attribute(pipeline.timeline).ranks[0].optimizer == 20 * US


def test_collectives_of_unknown_members_are_told(tmp_path):
    (pipeline,) = read([tail_traces(tmp_path, members=False)]).pipelines
    assert any(reason.startswith("tail") for reason in pipeline.unknown)


def test_send_receive_kernels_that_nothing_names_are_no_pipeline(tmp_path, simulated):
    folder = write_cuda(tmp_path, simulated())
    for path in folder.glob("*.json"):
        path.write_text(path.read_text().replace("PP:", "XX:"))
    (pipeline,) = read([folder]).pipelines
    assert pipeline.timeline is None
    assert any("no range names an action" in reason for reason in pipeline.unknown)
