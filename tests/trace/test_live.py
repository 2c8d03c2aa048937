"""Live records: what comes back of files as jobs and kills leave them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.records import lines, write

from unbubble import InputError, attribute
from unbubble.trace import read
from unbubble.trace.assembly import NO_RECOMPUTE
from unbubble.trace.live import Order, Run, Step, body_of, encode


@pytest.fixture
def folder(tmp_path):
    for rank in range(2):
        write(tmp_path, rank, lines(rank, range(3)))
    return tmp_path


def test_a_line_is_the_checksum_and_the_record(folder):
    line = lines(0, [])[0]
    assert line[:2] + line[-3:] == b'["}]\n'
    assert body_of(line[:-1]) == line[12:-2]
    for i in range(len(line) - 1):
        assert body_of(line[:i]) is None
        damaged = bytearray(line[:-1])
        damaged[i] ^= 1
        assert body_of(bytes(damaged)) is None


def test_a_step_comes_back_with_its_waits_taken_out(folder):
    trace = read([folder], step=1)
    assert (trace.format, trace.step, trace.steps) == ("live", 1, (0, 1, 2))
    assert trace.ignored == ("the ranks 0, 1, 2, 3, 6, 7, of which no file is here",)
    (pipeline,) = trace.pipelines
    assert pipeline.ranks == (4, 5)
    assert pipeline.unknown == (str(NO_RECOMPUTE),)
    timeline = pipeline.timeline
    rows = [[(str(e.action), e.start, e.end) for e in timeline.events(r)] for r in range(2)]
    assert rows[0] == [
        ("0F0", 0, 10), ("0F1", 11, 21), ("0B0", 130_023, 130_043), ("0B1", 190_044, 190_064),
        ("0REDUCE_GRAD", 190_064, 190_066), ("0OPTIMIZER", 190_076, 190_096),
    ]  # fmt: skip
    assert rows[1][0] == ("1F0", 80_006, 80_018)
    assert list(timeline.overhead[0]) == [1, 1, 1, 2, 2, 0]
    wire = {str(t.action): (t.start, t.end) for t in timeline.transfers}
    assert wire["0SEND_F0"] == (11, 80_006)
    assert sum(attribute(timeline).ranks[0][1:7]) == timeline.finish


def test_a_record_that_was_cut_off_is_passed_over_at_every_byte(folder):
    whole = lines(1, range(3))
    for cut in range(1, len(whole[-1])):
        write(folder, 1, [*whole[:-1], whole[-1][:cut]])
        trace = read([folder])
        assert trace.steps == (0, 1)
        assert "record cut off" in " ".join(trace.ignored)


def test_a_damaged_record_is_counted(folder):
    whole = lines(1, range(3))
    write(folder, 1, [*whole[:3], whole[3].replace(b'"step":1', b'"step":7'), whole[4]])
    trace = read([folder])
    assert trace.steps == (0, 2)
    assert "1 damaged records" in " ".join(trace.ignored)


def test_steps_may_be_in_several_files(folder):
    write(folder, 1, lines(1, [3, 4]), "a-rank{}-1.live.jsonl")
    write(folder, 0, lines(0, [3]), "a-rank{}-1.live.jsonl")
    assert read([folder]).steps == (0, 1, 2, 3)


def test_the_last_run_counts_and_the_others_are_named(folder):
    for rank in range(2):
        write(folder, rank, lines(rank, [0], run="b"), "b-rank{}-0.live.jsonl")
    trace = read([folder])
    assert trace.steps == (0,)
    assert "earlier runs, from a to a" in " ".join(trace.ignored)
    assert read([folder / "a-*"]).steps == (0, 1, 2)


def test_a_missing_rank_is_named(folder):
    next(folder.glob("*rank1*")).unlink()
    (pipeline,) = read([folder]).pipelines
    assert pipeline.timeline is None
    assert (
        "the pipeline has 2 ranks and 1 traces are here; rank 5 is missing" in pipeline.unknown[-1]
    )


def test_a_rank_that_a_kill_left_without_a_whole_record_is_missing(folder):
    write(folder, 1, [lines(1, [])[0][:-3]])
    (pipeline,) = read([folder]).pipelines
    assert "rank 5 is missing" in pipeline.unknown[-1]
    write(folder, 0, [lines(0, [])[0][:-3]])
    with pytest.raises(InputError, match="it holds no step"):
        read([folder])


def test_clocks_of_two_hosts_are_aligned_by_the_messages(folder):
    away = lines(1, range(3), clock=10**15)
    run = Run(run="a", rank=5, world_size=8, pipeline_ranks=[4, 5], host="there", epoch_ns=0)
    write(folder, 1, [encode(run), *away[1:]])
    (pipeline,) = read([folder], step=1).pipelines
    assert pipeline.unknown == (str(NO_RECOMPUTE),)
    assert abs(pipeline.clocks.offsets[1] + 10**15) <= pipeline.clocks.uncertainty


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"waits": [0]}, "step 0"),
        ({"waits": [-1] * 9}, "waits -1 ns"),
        ({"own": [99] * 9}, "99 ns of them its own"),
        ({"finish": 3}, "not in order"),
        ({"optimizer": (0, 5)}, "not in order"),
        ({"begin": -(1 << 62)}, "not in order"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(folder, record, message):
    fields = {
        "step": 0, "order": 3, "begin": 0, "finish": 10**6, "waits": [0] * 9, "times": [5] * 9,
        "own": [5] * 9,
    }  # fmt: skip
    write(folder, 0, [*lines(0, [])[:2], encode(Step(**fields | record))])
    with pytest.raises(InputError, match=message) as caught:
        read([folder])
    assert str(folder) in str(caught.value)


def test_a_whole_record_that_is_none_of_ours_is_refused(folder):
    write(folder, 0, [lines(0, [])[0], encode(Order(order=0, actions=["junk"]))])
    with pytest.raises(InputError, match="junk"):
        read([folder])


@pytest.mark.parametrize(
    "change",
    [{"rank": 3}, {"pipeline_ranks": []}, {"pipeline_ranks": [4, 4, 5]}, {"run": ""},
     {"pipeline_ranks": [-1, 4, 5]}, {"world_size": 5}, {"world_size": 1 << 40}],
)  # fmt: skip
def test_a_run_that_contradicts_itself_is_refused(folder, change):
    fields = {"run": "a", "rank": 4, "world_size": 8, "pipeline_ranks": [4, 5], "host": "here",
              "epoch_ns": 0}  # fmt: skip
    write(folder, 0, [encode(Run(**fields | change)), *lines(0, [0])[1:]])
    with pytest.raises(InputError, match="rank"):
        read([folder])


def test_a_step_that_is_there_twice_counts_once(folder):
    whole = lines(1, range(3))
    write(folder, 1, [*whole[:3], *whole[2:]])
    write(folder, 1, lines(1, [2]), "a-rank{}-1.live.jsonl")
    trace = read([folder])
    assert trace.steps == (0, 1, 2)
    told = {one.unknown for step in trace.steps for one in trace.pipelines_of(step)}
    assert told == {(str(NO_RECOMPUTE),)}


@given(data=st.data())
@settings(max_examples=200, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
def test_whatever_was_done_to_a_file_is_named_or_passed_over(folder, data):
    found = lines(1, range(3))
    write(folder, 1, found)
    undamaged = list(read([folder], step=0).pipelines[0].timeline.events(1))
    whole = bytearray(b"".join(found))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "repeat", "drop"])):
            case "flip":
                whole[at] ^= data.draw(st.integers(1, 255))
            case "cut":
                del whole[max(at, 1) :]
            case "repeat":
                whole[at:at] = whole[at : at + data.draw(st.integers(1, 300))]
            case "drop":
                del whole[at : at + data.draw(st.integers(1, 300))]
        if not whole:
            return
    write(folder, 1, [bytes(whole)])
    try:
        trace = read([folder])
    except InputError:
        return
    for step in trace.steps:
        (pipeline,) = trace.pipelines_of(step)
        if pipeline.timeline is None:
            assert pipeline.unknown
        else:
            assert list(pipeline.timeline.events(1)) == undamaged
