"""Segments: the files of a rank's steps, which turn over and never stop a training."""

import os

import pytest

from unbubble import InputError
from unbubble.runtime.segments import Segments
from unbubble.trace.live import Run, Step, read


def run(name="a", rank=0):
    return Run(run=name, rank=rank, world_size=1, pipeline_ranks=[rank], host="here", epoch_ns=0)


def write(segments, number, actions=("0F0", "0B0")):
    begin = 100 * number
    count = len(actions)
    step = Step(
        step=number, order=0, begin=begin, finish=begin + 50,
        waits=[1] * count, times=[5] * count, own=[4] * count,
    )  # fmt: skip
    segments.write(actions, step)


def numbers(folder):
    """Steps by file."""
    return [
        [number for number, _ in part.windows]
        for path in sorted(folder.iterdir())
        for part in read(str(path))
    ]


def test_every_file_can_be_read_alone(tmp_path):
    segments = Segments(tmp_path, run(), max_bytes=300, keep=10)
    orders = [("0F0", "0B0"), ("0F0", "0F1", "0B0", "0B1")]
    for i in range(6):
        write(segments, i, orders[i // 2 % 2])
        found = [n for names in numbers(tmp_path) for n in names]
        assert found == list(range(i + 1))  # at once, without a close
    for path in tmp_path.iterdir():
        (part,) = read(str(path))
        assert part.notes == ()
        for step in part.steps:
            assert [str(s.action) for s in step.actions] == list(orders[step.step // 2 % 2])


def test_only_the_last_files_of_the_rank_stay(tmp_path):
    Segments(tmp_path, run("b", rank=10), max_bytes=1, keep=2).close()
    for name in "ac":
        segments = Segments(tmp_path, run(name), max_bytes=1, keep=3)
        for i in range(2):
            write(segments, i)
        segments.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a-rank0-000001.live.jsonl",
        "b-rank10-000000.live.jsonl",
        "c-rank0-000000.live.jsonl",
        "c-rank0-000001.live.jsonl",
    ]


def test_a_disk_that_fails_is_warned_of_once(tmp_path, monkeypatch):
    segments = Segments(tmp_path, run(), max_bytes=1 << 20, keep=2)
    write(segments, 0)

    def full(file, line):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.warns(RuntimeWarning, match="No space left on device; steps are no longer"):
        write(segments, 1)
    write(segments, 2)
    monkeypatch.undo()
    assert numbers(tmp_path) == [[0]]


def test_limits_that_keep_nothing_are_refused(tmp_path):
    with pytest.raises(InputError, match="keep 1"):
        Segments(tmp_path, run(), max_bytes=1, keep=1)
