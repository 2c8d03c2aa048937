"""A real run on 8 MI300X, replayed: 1F1B, p=8, m=16, 20 iterations."""

import json
from statistics import fmean, median

import pytest
from tests.shared import shared

from unbubble import Costs, observed_costs, simulate
from unbubble.action import Kind
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.simulate.replay import replay, seen_lags
from unbubble.trace import read
from unbubble.trace.costs import usual
from unbubble.trace.primus import BY_ORDER, ONE_CHUNK
from unbubble.trace.primus import read as read_rank
from unbubble.trace.stragglers import stragglers

FOLDER = "measured/primus_mi300x/pp8"


@pytest.fixture(scope="module")
def run():
    """The timelines of all iterations, and the measured totals in nanoseconds."""
    trace = read([shared(FOLDER)])
    assert trace.steps == tuple(range(1, 21))
    timelines = [trace.pipelines_of(step)[0].timeline for step in trace.steps]
    first = json.loads(shared(f"{FOLDER}/pp_rank_0.json").read_text())
    return timelines, [first[str(step)]["total"] * 1e6 for step in trace.steps]


def test_it_ran_1f1b(run):
    assert all(t.schedule.codes == generate("1f1b", 8, 16).codes for t in run[0])


def test_exact_durations_give_the_measured_total(run):
    timelines, totals = run
    errors = [replay(t).makespan / total - 1 for t, total in zip(timelines, totals, strict=True)]
    assert all(-0.015 < error < 0 for error in errors[1:])
    # the first iteration sets up the connections, which no action's duration tells
    assert errors[0] < -0.1
    first, later = (t.starts[1][0] - t.ends[0][0] for t in timelines[:2])
    assert first > 1e9 > 1e6 > later


def test_with_what_inputs_were_seen_to_take_every_iteration_fits(run):
    for timeline, total in zip(*run, strict=True):
        replayed = replay(timeline, lags=seen_lags(timeline)).makespan
        assert -0.01 < replayed / total - 1 < 0


def test_costs_of_the_iterations_give_the_mean_and_the_median_iteration(run):
    timelines, totals = run
    predicted = simulate(timelines[0].schedule, observed_costs(timelines[1:])).length
    assert abs(predicted / fmean(totals[1:]) - 1) < 0.02
    assert abs(predicted / median(totals) - 1) < 0.02


def test_the_straggling_iterations_are_named_with_their_action(run):
    timelines, _ = run
    middle, times = median(t.length for t in timelines), usual(timelines)
    late = {i: t.length - middle for i, t in enumerate(timelines, 1) if t.length > 1.05 * middle}
    found = {i: stragglers(timelines[i - 1], times)[0] for i in late}
    assert [(i, str(one.action), one.rank) for i, one in found.items()] == [
        (1, "0F0", 0), (16, "2F8", 2), (18, "3F10", 3),
    ]  # fmt: skip
    assert all(found[i].excess > 0.9 * late[i] for i in (16, 18))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a Primus trace"),
        ("[]", "not a Primus trace"),
        ('{"1": {"fwd_start": []}}', "not a Primus trace"),
        ('{"x": {"total":1,"fwd_start":[0],"fwd_end":[1],"bwd_start":[1],"bwd_end":[2]}}', "'x'"),
        ('{"1": {"total":1,"fwd_start":[],"fwd_end":[],"bwd_start":[],"bwd_end":[]}}', "no action"),
        ('{"1": {"total":1,"fwd_start":[0],"fwd_end":[],"bwd_start":[1],"bwd_end":[2]}}', "0 ends"),
        (
            '{"1": {"total":1,"fwd_start":[3],"fwd_end":[1],"bwd_start":[1],"bwd_end":[2]}}',
            "3.0 to",
        ),
    ],
)
def test_what_is_no_such_trace_is_refused(tmp_path, text, message):
    path = tmp_path / "pp_rank_0.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_rank(str(path))


@pytest.mark.parametrize("config", [True, False])
def test_without_its_last_rank_there_are_no_classes(config, tmp_path):
    """With Primus's config.json the number of ranks says so, else a wait for which nothing
    speaks."""
    for path in shared(FOLDER).iterdir():
        if path.stem != "pp_rank_7" and (config or path.stem != "config"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (pipeline,) = read([tmp_path]).pipelines
    assert pipeline.timeline is None
    reason = "8 ranks and 7 traces" if config else "is the trace of a later stage missing?"
    assert reason in pipeline.unknown[-1]


@pytest.mark.parametrize(
    ("m", "v", "group"), [(8, 2, 4), (8, 3, 4), (4, 2, 4), (10, 2, 5), (6, 2, 6), (7, 3, 7)]
)
def test_the_stages_of_interleaving_are_told_by_its_order(m, v, group, tmp_path):
    """Megatron's own interleaved schedule is recorded without chunks, v times the microbatches in
    one list: its files were refused, and later those of between p and 2p microbatches in one group,
    whose first rank runs all forwards first. Every rank has a clock of its own."""
    order = generate("interleaved-1f1b", 4, m, v, rule="megatron", group=group)
    right = simulate(order, Costs.uniform(order.placement, forward=v, backward=2 * v))
    for rank in range(4):
        events = list(right.events(rank))
        one = {"total": right.makespan - rank, "memory": 1.0}
        for kind, name in ((Kind.F, "fwd"), (Kind.B, "bwd")):
            here = [e for e in events if e.action.kind is kind]
            one |= {f"{name}_start": [e.start - rank for e in here]}
            one |= {f"{name}_end": [e.end - rank for e in here]}
        (tmp_path / f"pp_rank_{rank}.json").write_text(json.dumps({"1": one}))
    (tmp_path / "config.json").write_text(json.dumps({"pp_size": 4, "vp_size": v, "num_mbs": m}))
    (pipeline,) = read([tmp_path]).pipelines
    assert pipeline.timeline.schedule.codes == right.schedule.codes
    assert pipeline.timeline.makespan == right.makespan * 1_000_000
    assert BY_ORDER in pipeline.recovered
    (tmp_path / "config.json").unlink()
    (pipeline,) = read([tmp_path]).pipelines
    assert str(ONE_CHUNK) in pipeline.unknown


def test_chunks_in_an_order_of_no_interleaving_are_refused(tmp_path):
    """Megatron's own interleaved schedule is recorded without chunks: twice the microbatches."""
    one = '{"1": {"total":1,"fwd_start":[0],"fwd_end":[1],"bwd_start":[1],"bwd_end":[2]}}'
    (tmp_path / "pp_rank_0.json").write_text(one)
    (tmp_path / "config.json").write_text('{"pp_size": 2, "vp_size": 2, "num_mbs": 1}')
    with pytest.raises(InputError, match="2 model chunks a rank"):
        read([tmp_path])
