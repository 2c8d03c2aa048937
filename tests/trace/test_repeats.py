"""Forwards that backwards run again: real jobs beside a clock, and what only looks like it."""

import json
from dataclasses import replace

import pytest
from checkpointed_job import CASES
from tests.trace.cuda_traces import BACKWARD, ENGINE, FORWARD, Writer

from unbubble.action import Kind
from unbubble.attribution import attribute
from unbubble.runtime.launch import Job, launch
from unbubble.trace import read
from unbubble.trace.costs import observed_costs
from unbubble.trace.intervals import clip, length, union
from unbubble.trace.kineto import load
from unbubble.trace.profiled import HIDDEN, RECOMPUTE, UNNUMBERED, observe

US = 1_000
BEFORE_NS = 300_000
"""From the call of a checkpointed function to its first operation, at most."""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpointed")
    launch(Job(task="checkpointed_job:train", argument=str(folder), processes=2, timeout_s=120))
    return folder


@pytest.fixture
def pipeline_of(job):
    def call(name):
        (pipeline,) = read([str(job / name / "rank*.json")]).pipelines
        return pipeline

    return call


@pytest.mark.parametrize("name", CASES)
def test_recompute_is_what_the_clock_says(job, pipeline_of, name):
    """Never more than that, and not 2 % less, but where a busy machine paused the thread between
    the call and its first operation, for which a third of the backwards must do."""
    pipeline = pipeline_of(name)
    assert not any(reason.startswith("recompute") for reason in pipeline.unknown)
    _, _, stages, microbatches = CASES[name]
    assert sum(len(one.actions) for one in pipeline.observed) >= 4 * stages * microbatches
    missing = []
    for one, row in zip(pipeline.observed, attribute(pipeline.timeline).ranks, strict=True):
        true = union(map(tuple, json.loads((job / name / f"clock{one.rank}.json").read_text())))
        assert row.recompute == sum(seen.recompute for seen in one.actions) <= length(true)
        for seen in one.actions:
            inside = clip(true, seen.start, seen.end)
            assert seen.recompute <= length(inside), seen.action
            if inside:
                most = 0.02 * length(inside) + BEFORE_NS * len(inside)
                missing.append((length(inside) - seen.recompute) / most)
    assert bool(missing) == (name != "nothing")
    assert name == "nothing" or sorted(missing)[(len(missing) - 1) // 3] < 1


@pytest.mark.parametrize("name", ["reentrant", "split"])
def test_costs_take_as_long_with_recompute_apart(pipeline_of, name):
    timeline = pipeline_of(name).timeline
    apart, whole = observed_costs([timeline]), observed_costs([replace(timeline, recompute=None)])
    for stage, other in zip(apart.stages, whole.stages, strict=True):
        for kind in (Kind.F, Kind.B, Kind.I, Kind.W):
            assert stage.of(kind) == other.of(kind)
        assert other.recompute.total == 0
    assert any(stage.recompute.total for stage in apart.stages)


@pytest.fixture
def observed(tmp_path):
    """Writes a backward of 100 … 900 µs that holds events (name, start and end in µs, numbers), and
    the links of forwards at some times; reads it."""

    def call(*events, linked=(), turn=False):
        writer = Writer(0, 2)
        writer.event("user_annotation", "ProfilerStep#3", 0, 1000 * US, 1)
        writer.event("user_annotation", "PP:0B0", 100 * US, 900 * US, 1)
        for name, start, end, numbers in events:
            writer.event("cpu_op", name, start * US, end * US, 1, **numbers)
        if turn:
            writer.events.reverse()
        for i, at in enumerate(linked):
            flow = {"cat": "fwdbwd", "name": "fwdbwd", "id": i, "pid": 1, "tid": 1}
            writer.events += [flow | {"ph": "s", "ts": at}, flow | {"ph": "f", "ts": at + 50}]
        trace = load(str(writer.write(tmp_path, baseTimeNanoseconds=0)))
        return observe(trace, trace.windows[0], 0)

    return call


NONE = {}
OUTER = (ENGINE, 110, 890, BACKWARD)
NODE = ("AddmmBackward0", 111, 889, BACKWARD)
AGAIN = [("aten::linear", 200, 300, FORWARD), ("aten::addmm", 210, 290, FORWARD),
         ("aten::gelu", 310, 350, FORWARD)]  # fmt: skip
OWN = ("aten::mm", 400, 800, NONE)


def recompute(one):
    (action,) = one.actions
    assert one.recompute_told == (not one.unknown)
    return action.recompute // US if one.recompute_told else None


@pytest.mark.parametrize("turn", [False, True])
def test_a_repeat_runs_from_its_first_to_its_last_operation(observed, turn):
    assert recompute(observed(OUTER, NODE, *AGAIN, OWN, turn=turn)) == 150


def test_the_engine_s_next_operation_ends_a_repeat(observed):
    nested = (ENGINE, 320, 880, BACKWARD)
    again = ("aten::gelu", 500, 560, FORWARD)
    assert recompute(observed(OUTER, NODE, *AGAIN[:2], nested, again)) == 100 + 60


def test_without_repeats_recompute_is_0(observed):
    assert recompute(observed(OUTER, NODE, OWN, ("c10d::allreduce_", 850, 860, FORWARD))) == 0


def test_numbers_of_what_nothing_records_are_none(observed):
    """Some versions number every operation, those outside of any recording with −1 or 2^64 − 1."""
    for number in (-1, (1 << 64) - 1):
        numbers = {"Sequence number": number, "Fwd thread id": 0}
        own = ("aten::mm", 400, 800, numbers)
        assert recompute(observed(OUTER, NODE, own)) == 0


def test_a_function_that_a_backward_applies_is_no_repeat_for_sure(observed):
    """The backward of an all-to-all applies one; a checkpointed function of one's own looks alike,
    unless a backward links to it."""
    applied = ("_AllToAll", 200, 300, FORWARD)
    one = observed(OUTER, NODE, applied, OWN)
    assert (one.unknown, recompute(one)) == ((RECOMPUTE,), None)
    assert (
        recompute(observed(OUTER, NODE, applied, (ENGINE, 700, 800, BACKWARD), linked=[200])) == 100
    )


def test_a_backward_of_a_backward_is_no_repeat_for_sure(observed):
    twice = ("aten::gelu_backward", 200, 300, FORWARD)
    assert observed(OUTER, NODE, twice, OWN).unknown == (RECOMPUTE,)


def test_compiled_backwards_hide_what_they_repeat(observed):
    compiled = ("CompiledFunctionBackward", 111, 889, BACKWARD)
    assert observed(OUTER, compiled, OWN).unknown == (HIDDEN,)


def test_links_alone_do_not_tell_how_long(observed):
    """Forwards with backwards of their own ran within the backward, and no operation shows them."""
    assert observed(OUTER, NODE, OWN, linked=[200]).unknown == (RECOMPUTE,)


def test_operations_without_numbers_tell_nothing(observed):
    bare = [(name, start, end, NONE) for name, start, end, _ in (OUTER, NODE, *AGAIN, OWN)]
    assert observed(*bare).unknown == (UNNUMBERED,)
    elsewhere = ("aten::t", 950, 960, FORWARD)
    assert observed(("aten::mm", 110, 890, NONE), elsewhere).unknown == (UNNUMBERED,)
