"""Following a folder while it grows, and the figures of its steps."""

import json
from fractions import Fraction

import msgspec
import pytest
from tests.records import lines, write

from unbubble import InputError, attribute
from unbubble.monitor import Follower, summary
from unbubble.monitor import follower as module
from unbubble.trace.live import Step, encode


def steps(ready):
    return [(one.run, one.step) for one in ready]


def test_a_step_is_told_once_when_all_ranks_have_it(tmp_path):
    mine, other = lines(0, range(3)), lines(1, range(3))
    follower = Follower([tmp_path])
    assert follower.poll() == []
    write(tmp_path, 0, mine)
    assert follower.poll() == []
    write(tmp_path, 1, other[:3])
    assert steps(follower.poll()) == [("a", 0)]
    assert follower.last_step == {4: 2, 5: 0}
    write(tmp_path, 1, other)
    (first, second) = follower.poll()
    assert (first.step, second.step) == (1, 2)
    assert first.ranks == (4, 5)
    assert follower.poll() == []
    assert (follower.given_up, follower.notes) == (0, [])


def test_every_byte_may_be_the_last_that_was_written(tmp_path):
    write(tmp_path, 0, lines(0, range(2)))
    whole = b"".join(lines(1, range(2)))
    follower, found = Follower([tmp_path]), []
    for cut in range(len(whole) + 1):
        write(tmp_path, 1, [whole[:cut]])
        found += follower.poll()
    assert steps(found) == [("a", 0), ("a", 1)]
    assert follower.notes == []


def test_a_new_run_takes_over(tmp_path):
    for rank in range(2):
        write(tmp_path, rank, lines(rank, [8, 9]))
    follower = Follower([tmp_path])
    assert steps(follower.poll()) == [("a", 8), ("a", 9)]
    write(tmp_path, 0, lines(0, [0], run="b"), "b-rank{}-0.live.jsonl")
    write(tmp_path, 1, lines(1, [10]), "a-rank{}-1.live.jsonl")
    assert follower.poll() == []
    write(tmp_path, 1, lines(1, [0], run="b"), "b-rank{}-0.live.jsonl")
    assert steps(follower.poll()) == [("b", 0)]
    assert follower.last_step == {4: 0, 5: 0}


def test_hosts_may_have_folders_of_their_own(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for rank, folder in enumerate(folders):
        folder.mkdir()
        write(folder, rank, lines(rank, [3]))
    assert steps(Follower(folders).poll()) == [("a", 3)]
    with pytest.raises(InputError, match="three: no such folder"):
        Follower([tmp_path / "three"])


def test_steps_that_a_rank_never_wrote_are_given_up(tmp_path, monkeypatch):
    write(tmp_path, 0, lines(0, range(5)))
    write(tmp_path, 1, lines(1, [1, 3]))
    follower = Follower([tmp_path])
    assert steps(follower.poll()) == [("a", 1), ("a", 3)]
    assert follower.given_up == 2  # 0 and 2
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    write(tmp_path, 0, lines(0, range(5, 9)), "a-rank{}-1.live.jsonl")
    assert follower.poll() == []
    assert follower.given_up == 4  # and 4 and 5, so that three wait


def test_files_that_turn_over_are_forgotten(tmp_path):
    for rank in range(2):
        write(tmp_path, rank, lines(rank, [0]))
    follower = Follower([tmp_path])
    follower.poll()
    for rank in range(2):
        write(tmp_path, rank, lines(rank, [1]), "a-rank{}-1.live.jsonl")
        (tmp_path / f"a-rank{rank}-0.live.jsonl").unlink()
    assert steps(follower.poll()) == [("a", 1)]
    assert len(follower._segments) == 2


def test_the_summary_is_the_attribution_of_the_step(tmp_path):
    for rank in range(2):
        write(tmp_path, rank, lines(rank, [7]))
    (ready,) = Follower([tmp_path]).poll()
    timeline = ready.pipeline().timeline
    wanted = attribute(timeline)
    found = summary(ready, Fraction(36))
    assert (found["run"], found["step"], found["pipeline_ranks"]) == ("a", 7, [4, 5])
    assert found["begun_s"] == 0.07
    assert found["step_s"] == timeline.finish / 1e9
    assert found["bubble_fraction"] == float(timeline.bubble_fraction)
    assert sum(found["fractions"].values()) == pytest.approx(1)
    idle = sum(row.total - row.compute for row in wanted.ranks) / 10**9
    assert found["idle_s"] == pytest.approx(float(idle))
    assert found["idle_cost"] == pytest.approx(float(idle) * 36 / 3600)
    assert found["slowest_rank"] == 5
    assert summary(ready)["idle_cost"] is None


def test_a_record_that_contradicts_itself_is_told_and_the_next_ones_too(tmp_path):
    """It ended the watch, and every watch that was started again."""
    for rank in range(2):
        found = lines(rank, [7, 8])
        if rank:
            body = json.loads(found[2])[1]
            found[2] = encode(msgspec.convert(body | {"waits": body["waits"][1:]}, Step))
        write(tmp_path, rank, found)
    bad, good = map(summary, Follower([tmp_path]).poll())
    assert (bad["step"], bad["step_s"], bad["pipeline_ranks"]) == (7, None, [4, 5])
    assert "step 7: " in bad["unknown"][0]
    assert good["step_s"] is not None
