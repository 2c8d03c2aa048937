"""Segments: the files of a rank's steps, which turn over and never stop a training."""

import os
import shutil

import pytest

from unbubble import InputError
from unbubble.runtime.segments import Segments, later_run
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


def test_two_jobs_in_one_folder_leave_each_others_files(tmp_path):
    """The job that began first removed each of its files as it made it, and the other the file
    that the first one wrote: their steps were nowhere, without a word."""
    first = Segments(tmp_path, run("a"), max_bytes=1 << 20, keep=2)
    second = Segments(tmp_path, run("b"), max_bytes=1, keep=2)
    for i in range(4):
        write(second, i)
    write(first, 7)
    assert numbers(tmp_path) == [[7], [2], [3]]
    again = Segments(tmp_path, run("a0"), max_bytes=1 << 20, keep=2)
    write(again, 8)
    assert [8] in numbers(tmp_path)
    for segments in (first, second, again):
        segments.close()
    Segments(tmp_path, run("c"), max_bytes=1, keep=2).close()
    assert numbers(tmp_path) == [[3], []]


def test_a_folder_that_was_removed_is_made_again(tmp_path):
    """Steps went on into a file without a name until it was full."""
    segments = Segments(tmp_path / "steps", run(), max_bytes=1 << 20, keep=2)
    write(segments, 0)
    shutil.rmtree(tmp_path / "steps")
    write(segments, 1)
    assert numbers(tmp_path / "steps") == [[1]]


def test_a_run_is_named_behind_those_in_the_folder(tmp_path):
    """After the clock was set back a new run sorted before the old one: its files were removed as
    soon as they were made, and the old run was the one that was read."""
    before = "29991231T235959-ffffffff"
    Segments(tmp_path, run(before), max_bytes=1, keep=2).close()
    Segments(tmp_path, run("any"), max_bytes=1, keep=2).close()
    assert later_run(tmp_path)[:15] == "30000101T000000"
    assert later_run(tmp_path / "none") < before


def test_an_interrupt_leaves_no_step_without_its_order(tmp_path, monkeypatch):
    """The order counted as written before it was, and the steps after it could not be read."""
    segments = Segments(tmp_path, run(), max_bytes=1 << 20, keep=2)

    def interrupted(line):
        raise KeyboardInterrupt

    whole = segments._append
    monkeypatch.setattr(segments, "_append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(segments, 0)
    monkeypatch.setattr(segments, "_append", whole)
    write(segments, 0)
    assert numbers(tmp_path) == [[0]]


def test_a_disk_that_is_full_from_the_start_is_warned_of(tmp_path, monkeypatch):
    """A job that was started again while it was full did not train."""

    def full(file, line):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.warns(RuntimeWarning, match="No space left on device; steps are no longer"):
        segments = Segments(tmp_path, run(), max_bytes=1 << 20, keep=2)
    write(segments, 0)
    monkeypatch.undo()
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):  # to be told while somebody is there
        Segments(tmp_path / "file", run(), max_bytes=1 << 20, keep=2)
