"""Files are written whole or not at all, and read with one-sentence errors."""

import os
from errno import ENOSPC

import pytest

from unbubble.errors import InputError
from unbubble.files import (
    MAX_TEXT_BYTES,
    expect_apart,
    expect_writable,
    read_text,
    replacing,
    write_text,
)


def test_what_is_written_is_read(tmp_path):
    write_text(tmp_path / "a", "0F0,0B0 µ\n")
    assert read_text(tmp_path / "a", "a schedule") == "0F0,0B0 µ\n"
    assert os.listdir(tmp_path) == ["a"]


def test_an_error_while_writing_leaves_the_old_file_alone(tmp_path):
    write_text(tmp_path / "a", "old")
    with pytest.raises(TypeError, match="bytes-like"), replacing(tmp_path / "a") as file:
        file.writelines([b"half of the n", "no bytes"])
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_permissions_and_links_survive(tmp_path):
    write_text(tmp_path / "a", "old")
    os.chmod(tmp_path / "a", 0o640)
    os.symlink(tmp_path / "a", tmp_path / "link")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_text() == "new"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OSError, match="No such file") as caught:
        write_text(tmp_path / "no" / "a", "x")
    assert caught.value.filename == str(tmp_path / "no" / "a")


def test_what_cannot_be_written_is_told_before_the_work(tmp_path):
    """A profile of minutes ended with the folder that did not exist."""
    expect_writable(None, tmp_path / "new", os.devnull)
    assert os.listdir(tmp_path) == []
    for path in (tmp_path / "no" / "a", tmp_path):
        with pytest.raises(OSError, match=r"No such file|directory") as caught:
            expect_writable(path)
        assert caught.value.filename == str(path)


def test_a_full_disk_names_the_file(tmp_path):
    with pytest.raises(OSError, match="No space left") as caught, replacing(tmp_path / "a"):
        raise OSError(ENOSPC, os.strerror(ENOSPC))
    assert caught.value.filename == str(tmp_path / "a")
    assert os.listdir(tmp_path) == []


def test_a_device_is_written_in_place():
    write_text(os.devnull, "x")
    assert not os.path.isfile(os.devnull)


def test_unreadable_inputs(tmp_path):
    with pytest.raises(InputError, match="No such file or directory; a plan was expected there"):
        read_text(tmp_path / "none", "a plan")
    with pytest.raises(InputError, match="directory"):
        read_text(tmp_path, "a plan")
    with pytest.raises(InputError, match="not a path"):
        read_text("a\0b", "a plan")
    (tmp_path / "binary").write_bytes(b"abc\xff")
    with pytest.raises(InputError, match="byte 3 is not UTF-8"):
        read_text(tmp_path / "binary", "a plan")
    with pytest.raises(InputError, match=f"larger than {MAX_TEXT_BYTES >> 20} MiB"):
        read_text("/dev/zero", "a plan")


def test_outputs_apart_from_each_other_and_from_inputs(tmp_path):
    """The second of two outputs of one name took the place of the first without a word."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("read")
    (tmp_path / "link").symlink_to(one)
    expect_apart({"--svg": two, "--html": None}, [one, None])
    expect_apart({"--svg": os.devnull, "--html": os.devnull}, [os.devnull])
    with pytest.raises(InputError, match=r"^--svg and --html both write .*two; give each"):
        expect_apart({"--svg": two, "--html": tmp_path / "." / "two"})
    with pytest.raises(InputError, match=r"^-o .*link would replace a file that this command"):
        expect_apart({"-o": tmp_path / "link"}, [one])
