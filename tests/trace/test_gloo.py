"""Real traces of two gloo processes against the times that a clock beside the profiler took."""

import pytest
from tests.shared import shared
from tests.trace.truth import errors, truth

from unbubble.attribution import attribute
from unbubble.trace import read

SCHEDULES = ["1F1B", "1F1B_annot", "GPipe", "Interleaved1F1B", "ZBVZeroBubble"]


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
        for what, error in errors(own, true).items():
            assert abs(error) < 0.02, what


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
