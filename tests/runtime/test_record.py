"""The live recorder around PyTorch's own schedules, on two processes, all in one launch."""

import pytest
from live_job import MICROBATCHES, SCHEDULES, SECONDS, STEPS

from unbubble import InputError, attribute, record
from unbubble.action import Kind
from unbubble.families import generate
from unbubble.runtime.launch import Job, launch
from unbubble.trace import read
from unbubble.trace.assembly import NO_RECOMPUTE


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("live")
    job = Job(task="live_job:train", argument=str(found), processes=2, timeout_s=60)
    assert launch(job) == []
    return found


NAMES = [*SCHEDULES, "device"]


@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_read_back_as_the_schedule_that_ran(folder, name):
    trace = read([folder / name])
    assert (trace.format, trace.ignored) == ("live", ())
    assert trace.steps == tuple(range(STEPS))
    schedule = "1f1b" if name == "device" else name
    wanted = generate(schedule, 2, MICROBATCHES, virtual=SCHEDULES[schedule][1])
    for number in trace.steps:
        (pipeline,) = trace.pipelines_of(number)
        assert pipeline.unknown == (str(NO_RECOMPUTE),)
        assert pipeline.clocks.uncertainty == 0
        timeline = pipeline.timeline
        for rank in range(2):
            actions = [e.action for e in timeline.events(rank)]
            assert [a for a in actions if a.is_compute] == list(wanted.actions(rank))
            assert actions[-1].kind is Kind.OPTIMIZER
        crossings = sum(rank >= 0 for rank in timeline.schedule.placement.next_rank)
        assert len(timeline.transfers) == 2 * crossings * MICROBATCHES
        for row in attribute(timeline).ranks:
            assert sum(row[1:7]) == row.total == timeline.finish


@pytest.mark.parametrize("name", NAMES)
def test_an_action_takes_what_the_model_took(folder, name):
    (pipeline,) = read([folder / name], step=1).pipelines
    timeline = pipeline.timeline
    for rank in range(2):
        for event, overhead in zip(timeline.events(rank), timeline.overhead[rank], strict=True):
            if event.action.is_compute:
                least = SECONDS * (2 if event.action.kind is Kind.B else 1)
                if event.action.kind is Kind.I and event.action.stage == 0:
                    least = 0  # PyTorch's first stage does all of its backward in W
                assert event.end - event.start - overhead >= least * 1e9


@pytest.mark.parametrize("name", NAMES)
def test_no_input_is_used_before_its_sender_sent_it(folder, name):
    (pipeline,) = read([folder / name], step=2).pipelines
    timeline = pipeline.timeline
    events = [e for rank in range(2) for e in timeline.events(rank)]
    ends = {(e.action.kind, e.action.stage, e.action.microbatch): e.end for e in events}
    for event in events:
        kind, stage, microbatch, _ = event.action
        if kind is Kind.F and stage:
            assert ends[kind, stage - 1, microbatch] <= event.start
        if kind in (Kind.B, Kind.I) and (kind, stage + 1, microbatch) in ends:
            assert ends[kind, stage + 1, microbatch] <= event.start


def test_a_loop_may_mark_its_steps_and_the_oldest_files_go(folder):
    files = sorted(path.name for path in (folder / "stages").iterdir())
    assert len(files) == 4
    assert all(name.endswith(("00001.live.jsonl", "00002.live.jsonl")) for name in files)
    trace = read([folder / "stages"])
    assert trace.steps == (9, 11)  # of 7, 9 and 11; those between failed
    (pipeline,) = trace.pipelines
    assert pipeline.unknown == (str(NO_RECOMPUTE),)
    assert len(pipeline.timeline.transfers) == 2 * MICROBATCHES


def test_a_loop_that_ends_in_its_optimizer_leaves_all_of_its_steps(folder):
    """The optimizer of the last one had begun after the step was over, and a record of that
    contradicted itself: the whole folder was refused."""
    trace = read([folder / "interrupted"])
    assert trace.steps == (0, 1)
    for step, ends in enumerate((Kind.OPTIMIZER, Kind.REDUCE_GRAD)):
        (pipeline,) = trace.pipelines_of(step)
        assert [*pipeline.timeline.events(0)][-1].action.kind is ends


def test_what_cannot_be_recorded_is_named(tmp_path):
    with pytest.raises(InputError, match="needs the pipeline's schedule"):
        record(folder=tmp_path)
    with pytest.raises(InputError, match="cannot watch a str"):
        record("1f1b", folder=tmp_path)
