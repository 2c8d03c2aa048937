"""Real traces of two gloo processes against the times that a clock beside the profiler took."""

import json
from array import array

import pytest
from tests.shared import shared

from unbubble.action import Action, Kind
from unbubble.attribution import attribute
from unbubble.schedule import Schedule
from unbubble.simulate import Timeline
from unbubble.trace import read

SCHEDULES = ["1F1B", "1F1B_annot", "GPipe", "Interleaved1F1B", "ZBVZeroBubble"]
METHODS = {
    "forward_one_chunk": Kind.F,
    "backward_one_chunk": Kind.B,
    "backward_weight_one_chunk": Kind.W,
}


def truth(folder, step, like, zero):
    """The step with the actions' true times; transfers and optimizer are those of the trace."""
    rows, starts, ends, finish = [], [], [], 0
    for rank, path in enumerate(sorted(folder.glob("truth_rank*.json"))):
        events = json.loads(path.read_text())
        begin, until = next(e[3:] for e in events if e[0] == "step" and e[2] == step)
        inside = [e for e in events if e[0] in METHODS and begin <= e[3] <= until]
        kinds = METHODS | ({"backward_one_chunk": Kind.I} if like.schedule.splits_backward else {})
        tail = [e for e in like.events(rank) if not e.action.is_compute]
        rows.append([Action(kinds[e[0]], *e[1:3]) for e in inside] + [e.action for e in tail])
        starts.append(array("q", [e[3] - zero for e in inside] + [e.start for e in tail]))
        ends.append(array("q", [e[4] - zero for e in inside] + [e.end for e in tail]))
        finish = max(finish, until - zero)
    return Timeline(
        schedule=Schedule.of(rows, like.schedule.placement),
        starts=tuple(starts),
        ends=tuple(ends),
        begin=min(row[0] for row in starts),
        finish=finish,
        transfers=like.transfers,
    )


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("step", [1, 2])
def test_every_class_is_that_of_the_truth(name, step):
    folder = shared("traces/torch_gloo") / name
    trace = read([str(folder / "rank*")], step=step)
    (pipeline,) = trace.pipelines
    assert pipeline.unknown == ()
    assert pipeline.clocks.uncertainty == 0
    timeline = pipeline.timeline
    zero = min(one.actions[0].start for one in pipeline.observed)
    right = truth(folder, step, timeline, zero)
    assert timeline.schedule.codes == right.schedule.codes
    wanted, found = attribute(right), attribute(timeline)
    for own, true in zip(found.ranks, wanted.ranks, strict=True):
        assert own.compute == pytest.approx(true.compute, rel=0.02)
        assert own.compute - own.optimizer == pytest.approx(true.compute - true.optimizer, rel=0.02)
        for part in ("bubble", "imbalance_static", "imbalance_jitter", "communication", "overhead"):
            assert abs(getattr(own, part) - getattr(true, part)) < 0.02 * true.total, part


def test_what_was_recovered_is_said():
    plain, named = (
        read([shared("traces/torch_gloo") / name]).pipelines[0]
        for name in ("1F1B", "ZBVZeroBubble")
    )
    assert any("autograd" in note for note in plain.recovered)
    assert any("order of the ranks" in note for note in plain.recovered)
    assert named.recovered == ()


def test_the_order_is_the_one_that_pytorch_ran():
    folder = shared("traces/torch_gloo/Interleaved1F1B")
    timeline = read([folder]).pipelines[0].timeline
    rows = (folder / "schedule_compute_comms.csv").read_text().splitlines()
    for rank, row in enumerate(rows):
        computed = [cell for cell in row.split(",") if cell.strip("0123456789") in ("F", "B")]
        found = [str(e.action) for e in timeline.events(rank) if e.action.is_compute]
        assert found == computed


def test_one_rank_alone_gives_what_it_can():
    folder = shared("traces/torch_gloo")
    for name in SCHEDULES:
        (pipeline,) = read([folder / name / "rank0.pt.trace.json.gz"]).pipelines
        assert pipeline.timeline is None
        assert any("rank" in reason for reason in pipeline.unknown)
        (one,) = pipeline.observed
        assert len(one.actions) >= 8
        assert one.busy.compute > 0.2 * one.busy.total
