"""Steps of several calls of a schedule: real jobs beside a clock, and what the calls are."""

import gzip
import json

import pytest
from evaluating_job import CASES, STEPS
from tests.shared import shared
from tests.trace.truth import truth

from unbubble.action import parse
from unbubble.runtime.launch import Job, launch
from unbubble.trace import read
from unbubble.trace.advice import called, recognised
from unbubble.trace.names import Named
from unbubble.trace.profiled import EVALUATED
from unbubble.trace.rehearsal import REHEARSED
from unbubble.trace.rounds import between_steps, numbered_on


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluating")
    launch(Job(task="evaluating_job:train", argument=str(folder), processes=2, timeout_s=120))
    return folder


@pytest.mark.parametrize("name", CASES)
def test_calls_of_a_step_are_one_step_and_an_evaluation_is_none(job, name):
    """Of accumulated gradients `0F0 happened twice in the step`, a trace without the profiler's
    steps had a step a call, and an evaluation was microbatches that were never learned."""
    trace = read([str(job / name / "rank*")])
    trained = list(trace.steps[: STEPS if CASES[name][2] else -1])
    assert len(trained) == STEPS
    assert trace.step in trained
    for step in trained:
        (pipeline,) = trace.pipelines_of(step)
        timeline = pipeline.timeline
        assert timeline is not None, pipeline.unknown
        zero = min(one.actions[0].start for one in pipeline.observed)
        right = truth(job / name, step, timeline, zero)
        assert timeline.schedule.codes == right.schedule.codes
        if name == "1f1b":
            assert REHEARSED in pipeline.recovered
        elif CASES[name][2]:
            assert EVALUATED in pipeline.recovered


def test_a_step_that_is_an_evaluation_is_told(job):
    """An interleaved one had classes: PyTorch names its backwards, in which nothing runs."""
    trace = read([str(job / "unmarked" / "rank*")])
    (pipeline,) = trace.pipelines_of(trace.steps[-1])
    assert pipeline.timeline is None
    assert any("as in an evaluation" in reason for reason in pipeline.unknown)


def test_microbatches_are_numbered_on_from_call_to_call():
    #     0    10        20   30               40        50
    row = ["0F0", "0B0", "0F0", "(0F1;1B0)OVERLAP_F_B", "0UNSHARD", "0F0"]
    ranges = [((10 * i, 10 * i + 9), Named(parse(text))) for i, text in enumerate(row)]
    found = [str(named.action) for _, named in numbered_on(ranges, [20, 40])]
    assert found == ["0F0", "0B0", "0F1", "(0F2;1B1)OVERLAP_F_B", "0UNSHARD", "0F3"]


@pytest.fixture(params=["1F1B", "GPipe", "Interleaved1F1B", "ZBVZeroBubble"])
def as_one(request, tmp_path):
    """Real steps that the profiler was told are one, with or without the first one's optimizer."""

    def call(*, optimizers):
        for path in (shared("traces/torch_gloo") / request.param).glob("rank*"):
            trace = json.loads(gzip.decompress(path.read_bytes()))
            events = trace["traceEvents"]
            first, last = (e for e in events if str(e.get("name")).startswith("ProfilerStep#"))
            first["dur"] = last["ts"] + last["dur"] - first["ts"]
            events.remove(last)
            if optimizers == 1:
                events.remove(
                    next(e for e in events if str(e.get("name")).startswith("Optimizer.step#"))
                )
            (tmp_path / path.name[:-3]).write_text(json.dumps(trace))
        return read([tmp_path]).pipelines[0]

    return call


def test_several_steps_in_one_are_refused(as_one):
    """With their microbatches numbered on, two steps would have been one with an optimizer in its
    middle."""
    pipeline = as_one(optimizers=2)
    assert pipeline.timeline is None
    assert any("it is several steps" in reason for reason in pipeline.unknown)


def test_without_an_optimizer_between_them_they_are_one(as_one):
    pipeline = as_one(optimizers=1)
    assert pipeline.timeline is not None, pipeline.unknown
    (found,) = {part.microbatch for e in pipeline.timeline.events(0) for part in e.action.parts
                if part.is_compute} - set(range(7))  # fmt: skip
    assert found == 7


def test_the_schedule_of_several_calls_is_recognised(as_one, request):
    """No known schedule had the order, and a rank was asked for that was not missing."""
    pipeline = as_one(optimizers=1)
    name = request.node.callspec.params["as_one"]
    names = {"1F1B": "1f1b", "GPipe": "gpipe", "Interleaved1F1B": "interleaved-1f1b"}
    order = pipeline.timeline.schedule
    assert recognised(order) == ""
    assert called(order) == ((names[name], 2) if name in names else ("zb-v", 2))


@pytest.mark.parametrize(
    ("row", "at", "right"),
    [
        (["0F0", "0B0", "0F1", "0B1"], 2, True),
        (["0F0", "0I0", "0W0", "0F1", "0B1"], 3, True),
        (["0F0", "0F1", "0B0", "0B1"], 3, False),
        (["0F0", "0B0"], 2, False),
        (["0F0", "0B0"], 0, False),
    ],
)
def test_an_optimizer_between_steps_has_no_microbatch_under_way(row, at, right):
    ranges = [((10 * i, 10 * i + 7), Named(parse(text))) for i, text in enumerate(row)]
    assert between_steps(ranges, (10 * at - 2, 10 * at - 1)) == right
