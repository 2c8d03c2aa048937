"""Real traces of two gloo processes against the times that a clock beside the profiler took."""

import gzip
import json

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


def without(folder, name, *lost):
    """The traces without the ranges whose names begin so."""
    for path in (shared("traces/torch_gloo") / name).glob("rank*"):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        kept = [e for e in trace["traceEvents"] if not str(e.get("name")).startswith(lost)]
        (folder / path.name[:-3]).write_text(json.dumps(trace | {"traceEvents": kept}))
    return folder


@pytest.mark.parametrize("name", SCHEDULES)
def test_steps_that_no_range_marks_are_the_same(tmp_path, name):
    """Both steps of an unnamed 1F1B were one step of twice the microbatches; where actions are
    named, a step lost the receives before its first action."""
    marked = read([str(shared("traces/torch_gloo") / name / "rank*")])
    found = read([without(tmp_path, name, "ProfilerStep")])
    assert len(found.steps) == len(marked.steps)
    for own, right in zip(found.steps, marked.steps, strict=True):
        (own_step,), (right_step,) = found.pipelines_of(own), marked.pipelines_of(right)
        assert own_step.unknown == right_step.unknown
        assert own_step.timeline.starts == right_step.timeline.starts
        assert attribute(own_step.timeline) == attribute(right_step.timeline)


def test_a_trace_that_nothing_divides_is_told(tmp_path):
    (pipeline,) = read([without(tmp_path, "1F1B", "ProfilerStep", "Optimizer.step")]).pipelines
    assert any("all of it counts as one" in reason for reason in pipeline.unknown)
