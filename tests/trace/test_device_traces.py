"""Traces of devices: kernels linked by correlation, the SendRecv trap, clocks apart by seconds."""

import json

import pytest
from tests.trace.cuda_traces import (
    AUTOGRAD,
    BACKWARD,
    ENGINE,
    FORWARD,
    MAIN,
    REDUCE,
    SEND,
    Unnamed,
    Writer,
    write_cuda,
    write_unnamed,
)

from unbubble.action import Kind
from unbubble.attribution import attribute
from unbubble.costs import Costs, Duration, Edge, StageCosts
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.prediction import predict
from unbubble.schedule.lowering import compute_only
from unbubble.simulate import simulate
from unbubble.simulate.waits import waits
from unbubble.trace import read
from unbubble.trace.costs import observed_costs

US, MS = 1_000, 1_000_000


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


@pytest.mark.parametrize(("name", "ranks"), [("1f1b", 4), ("zb-v", 2)])
def test_kernels_that_a_repeated_forward_launched_are_recompute(tmp_path, simulated, name, ranks):
    again, m = 60 * US, 6
    timeline = simulated(name, ranks, m)
    (pipeline,) = read([write_cuda(tmp_path, timeline, again=again)]).pipelines
    assert pipeline.unknown == ()
    held = timeline.schedule.num_stages // ranks
    for row, plain in zip(
        attribute(pipeline.timeline).ranks, attribute(timeline).ranks, strict=True
    ):
        assert row == plain._replace(recompute=held * m * again)
    for stage in observed_costs([pipeline.timeline]).stages:
        assert stage.recompute == Duration(again)
        half, whole = (90 * US, 110 * US) if name == "zb-v" else (None, 200 * US)
        if half:
            assert stage.of(Kind.I) == Duration(half)
            assert stage.backward_input == Duration(half - again)
        else:
            assert stage.of(Kind.B) == Duration(whole)
            assert stage.backward == Duration(whole - again)


def test_kernels_that_another_thread_launches_meanwhile_are_not_repeated(tmp_path):
    """The main thread runs a forward while autograd's runs one again."""
    writer = Writer(0, 1)
    writer.range("PP:0F0", [("gemm", 0, 50 * US, 7, {})])
    begin, writer.thread = writer.clock, AUTOGRAD
    writer.launch("gemm", 60 * US, 70 * US, 7)
    writer.thread = MAIN
    writer.launch("gemm", 70 * US, 90 * US, 8)
    writer.thread = AUTOGRAD
    writer.launch("gemm", 90 * US, 130 * US, 7)
    writer.event("cpu_op", "aten::linear", begin, writer.clock, AUTOGRAD, **FORWARD)
    writer.event("cpu_op", ENGINE, begin, writer.clock + 10, AUTOGRAD, **BACKWARD)
    writer.event("user_annotation", "PP:0B0", begin, writer.clock + 20, MAIN)
    writer.write(tmp_path)
    (pipeline,) = read([tmp_path]).pipelines
    assert attribute(pipeline.timeline).ranks[0].recompute == 50 * US
    assert attribute(pipeline.timeline).ranks[0].compute == 120 * US


def test_kernels_alone_do_not_tell_recompute(tmp_path, simulated):
    """A trace without the host's operations: no figure, not 0."""
    folder = write_cuda(tmp_path, simulated(), again=60 * US)
    for path in folder.glob("*.json"):
        path.write_text(path.read_text().replace('"cpu_op"', '"python_function"'))
    (pipeline,) = read([folder]).pipelines
    assert pipeline.timeline.recompute is None
    assert attribute(pipeline.timeline).ranks[0].recompute is None
    assert [text.split(":")[0] for text in pipeline.unknown] == ["recompute"]


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
        if members is not None:
            more |= {"Process Group Ranks": members, "Group size": 2}
        writer.launch(REDUCE, begin, 510 * US, 20, **more)
        writer.range("Optimizer.step#Adam.step", [("adam", 510 * US, 530 * US, 7, {})])
        writer.write(folder, host_name="box")
    return folder


def reductions(timeline):
    """How long each rank's takes."""
    return [
        event.end - event.start
        for rank in range(timeline.ranks)
        for event in timeline.events(rank)
        if event.action.kind is Kind.REDUCE_GRAD
    ]


def test_collectives_at_the_end_count_from_their_last_member(tmp_path):
    (pipeline,) = read([tail_traces(tmp_path, members="[0, 1]")]).pipelines
    assert reductions(pipeline.timeline) == [20 * US, 20 * US]
    assert not any(reason.startswith("tail") for reason in pipeline.unknown)
    assert attribute(pipeline.timeline).ranks[0].optimizer == 20 * US


@pytest.mark.parametrize("members", [None, "", "[]"])
def test_collectives_of_unknown_members_are_told(members, tmp_path):
    """Those with an empty list of members were taken for one call, all of one length."""
    (pipeline,) = read([tail_traces(tmp_path, members=members)]).pipelines
    assert any(reason.startswith("tail") for reason in pipeline.unknown)
    assert reductions(pipeline.timeline) == [60 * US, 20 * US]


def test_send_receive_kernels_that_nothing_names_are_no_pipeline(tmp_path, simulated):
    folder = write_cuda(tmp_path, simulated())
    for path in folder.glob("*.json"):
        path.write_text(path.read_text().replace("PP:", "XX:"))
    (pipeline,) = read([folder]).pipelines
    assert pipeline.timeline is None
    assert any("no range names an action" in reason for reason in pipeline.unknown)


def edited(folder, change):
    """The traces of a folder, each object changed."""
    for path in folder.glob("*.json"):
        trace = json.loads(path.read_text())
        change(trace)
        path.write_text(json.dumps(trace))
    return folder


def test_the_one_kernel_of_rccl_is_a_transfer_where_one_launched_it(tmp_path, simulated):
    """Its name is the same for every collective; transfers were taken for the actions' own."""

    def as_rccl(trace):
        for event in trace["traceEvents"]:
            if event["cat"] == "kernel" and "nccl" in event["name"]:
                event["name"] = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"
                event["args"].pop("Collective name", None)

    timeline = simulated()
    (tmp_path / "cuda").mkdir()
    named = read([write_cuda(tmp_path / "cuda", timeline, comm=20 * US, trap=False)])
    (tmp_path / "rocm").mkdir()
    folder = write_cuda(tmp_path / "rocm", timeline, comm=20 * US, trap=False)
    (pipeline,) = read([edited(folder, as_rccl)]).pipelines
    assert pipeline.unknown == ()
    assert attribute(pipeline.timeline) == attribute(named.pipelines[0].timeline)


def test_transfers_of_other_groups_inside_an_action_are_its_communication(tmp_path):
    """A ring of context parallelism sends within forwards; its kernels belonged to nothing."""
    writer = Writer(0, 1)
    ring = (SEND, 40 * US, 60 * US, 22, {"Collective name": "send"})
    gemms = [("gemm", 0, 40 * US, 7, {}), ring, ("gemm", 60 * US, 90 * US, 7, {})]
    writer.range("PP:0F0", gemms)
    writer.range("PP:0B0", [("gemm", 90 * US, 190 * US, 7, {})])
    # a transfer of the pipeline has a range of its own
    sent = (SEND, 190 * US, 191 * US, 20, {"Collective name": "send"})
    writer.range("PP:0SEND_F0", [sent])
    writer.write(tmp_path)
    (one,) = read([tmp_path]).pipelines[0].observed
    assert [(seen.communication, seen.overhead) for seen in one.actions] == [(20 * US, 0), (0, 0)]


def test_ranks_merged_into_one_file_are_refused(tmp_path, simulated):
    """Their threads and correlations have the same numbers: one rank was made of all of them."""
    folder = write_cuda(tmp_path, simulated(ranks=2))
    alone = attribute(read([folder]).pipelines[0].timeline)
    events = []
    for rank, path in enumerate(sorted(folder.glob("*.json"))):
        for event in json.loads(path.read_text())["traceEvents"]:
            events.append(event | {"pid": f"[PP{rank:02}] {event['pid']}"})
    merged = tmp_path / "merged.json"
    merged.write_text(json.dumps({"traceEvents": events}))
    with pytest.raises(InputError, match=r"2 processes .* merged into one file"):
        read([merged])
    beside = read([folder])
    assert attribute(beside.pipelines[0].timeline) == alone
    assert "merged" in " ".join(beside.ignored)


@pytest.mark.parametrize(
    ("own", "other"),
    [("mesh_pp", "mesh_pp_dp"),
     ("PIPELINE_MODEL_PARALLEL_GROUP", "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP")],
)  # fmt: skip
def test_a_group_of_several_dimensions_is_no_pipeline(tmp_path, simulated, own, other):
    """Megatron's group of experts, tensors and the pipeline was taken for the pipeline."""

    def with_groups(trace):
        trace["distributedInfo"]["pg_config"] = [
            {"pg_desc": "default_pg", "ranks": [0, 1, 2, 3]},
            {"pg_desc": own, "ranks": [0, 1]},
            {"pg_desc": other, "ranks": [0, 1, 2, 3]},
        ]

    folder = write_cuda(tmp_path, simulated(ranks=2))
    (pipeline,) = read([edited(folder, with_groups)]).pipelines
    assert pipeline.ranks == (0, 1)
    assert pipeline.timeline is not None


def test_an_order_that_cannot_have_run_has_no_classes(tmp_path):
    """A backward before the next stage's: the command ended with a deadlock of the simulator."""
    writer = Writer(0, 1)
    for i, name in enumerate(("0F0", "1F0", "0B0", "1B0")):
        writer.range(f"PP:{name}", [("gemm", i * 90 * US, (i + 1) * 90 * US, 7, {})])
    writer.write(tmp_path)
    (pipeline,) = read([tmp_path]).pipelines
    assert pipeline.timeline is None
    assert "no pipeline can have run so" in pipeline.unknown[-1]


def test_a_step_lasts_until_the_device_is_done_with_it(tmp_path):
    """The host launches all of a step at once and long before: of 400 µs of work the 4 µs were
    told in which it did, as 100 % compute."""
    writer = Writer(0, 1)
    for step in range(2):
        begin, at = writer.clock, step * 500 * US
        writer.launch("gemm", at + 50 * US, at + 250 * US, 7)
        writer.launch("gemm", at + 300 * US, at + 500 * US, 7)
        writer.event("user_annotation", f"ProfilerStep#{step}", begin, writer.clock, MAIN)
    writer.write(tmp_path)
    for step in range(2):
        busy = read([tmp_path], step=step).pipelines[0].observed[0].busy
        assert (busy.compute, busy.communication, busy.idle) == (400 * US, 0, 100 * US)


def test_actions_that_nothing_names_are_recovered_on_a_device(tmp_path, simulated):
    """PyTorch's 1F1B: autograd's own thread runs backwards, and only the main one was read."""
    timeline = simulated(slow=1)
    (pipeline,) = read([write_unnamed(tmp_path, timeline)]).pipelines
    assert pipeline.unknown == ()
    assert "actions, from autograd's links" in pipeline.recovered[0]
    for rank in range(timeline.ranks):
        found = [(e.action, e.start, e.end) for e in pipeline.timeline.events(rank)]
        assert found[:-1] == [(e.action, e.start, e.end) for e in timeline.events(rank)]
    wanted = attribute(timeline)
    for row, right in zip(attribute(pipeline.timeline).ranks, wanted.ranks, strict=True):
        assert row.compute - row.optimizer == right.compute
        assert (row.communication, row.overhead) == (right.communication, 0)


def test_a_ring_of_sends_is_no_pipeline(tmp_path):
    """Context parallelism passes keys on between two parts of a layer, on all ranks at once: runs
    of operations pair up like microbatches, and two stages were made of two such ranks."""
    for rank in range(2):
        writer, at, forwards = Unnamed(rank, 2), 0, []
        for part in range(4):
            time = (20 if part > 1 else 10) * MS
            forward = forwards[3 - part] if part > 1 else None
            forwards.append(writer.computed("attention", at, at + time, forward))
            at += time + MS
            if part in (0, 2):
                writer.posted("send", at - MS, at)
                writer.posted("recv", at - MS, at)
        writer.write(tmp_path, host_name="box")
    (pipeline,) = read([tmp_path]).pipelines
    assert pipeline.timeline is None
    assert "did not wait" in pipeline.unknown[-1]


def test_parameters_that_are_gathered_first_are_communication(tmp_path):
    """With FSDP a step of 24 ms was one of 21: what its ranks gathered before their first action
    was left out. In costs it was overhead of every action."""
    rows = {
        0: [("F0", 3, 5), ("F1", 5, 7), ("B0", 11, 15), ("B1", 17, 21)],
        1: [("F0", 5, 7), ("B0", 7, 11), ("F1", 11, 13), ("B1", 13, 17)],
    }
    gather, reduce = "ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_ReduceScatter_Sum"
    for rank, row in rows.items():
        writer = Writer(rank, 2)
        launches = [(f"PP:{rank}UNSHARD", gather, 0, 3)]
        launches += [(f"PP:{rank}{name}", "gemm", start, end) for name, start, end in row]
        last = row[-1][2]
        launches.append((f"PP:{rank}REDUCE_GRAD", reduce, last, last + 2))
        launches.append(("Optimizer.step#SGD.step", "sgd", last + 2, last + 3))
        for name, kernel, start, end in launches:
            writer.range(name, [(kernel, start * MS, end * MS, 7, {})])
        writer.write(tmp_path, host_name="box")
    (pipeline,) = read([tmp_path]).pipelines
    timeline = pipeline.timeline
    assert timeline.length == 24 * MS
    for row in attribute(timeline).ranks:
        assert (row.compute, row.bubble, row.communication) == (13 * MS, 6 * MS, 5 * MS)
        assert row.overhead == 0
    first = [wait for wait in waits(timeline) if str(wait.action).endswith("F0")]
    assert [(w.rank, w.start, w.end, str(w.cause)) for w in first] == [(1, 3 * MS, 5 * MS, "0F0")]
    costs = observed_costs([timeline])
    assert (costs.action_overhead, costs.tail.reduce) == (0, 5 * MS)
    assert predict(compute_only(timeline.schedule), costs).length == timeline.length
