"""The files that `simulate` writes, and its drawing."""

import json
from xml.etree import ElementTree

CALL = "simulate --schedule 1f1b -p 4 -m 8 --backward 2"


def test_one_call_writes_all_three(unbubble, tmp_path):
    paths = [tmp_path / name for name in ("a.svg", "a.json", "a.html")]
    answer = unbubble(CALL, "--json", "--svg", paths[0], "--chrome", paths[1], "--html", paths[2])
    assert answer.json["makespan"] == 33
    assert ElementTree.parse(paths[0]).getroot().tag.endswith("svg")
    assert len([e for e in json.loads(paths[1].read_text())["traceEvents"] if e["ph"] == "X"]) == 64
    assert "<!doctype html>" in paths[2].read_text()


def test_a_file_that_cannot_be_written_is_named(refused, tmp_path):
    message = refused(CALL, "--svg", tmp_path / "missing" / "a.svg")
    assert "missing/a.svg: No such file or directory" in message
    assert list(tmp_path.iterdir()) == []


def test_the_drawing_stands_above_the_figures(unbubble):
    lines = unbubble(CALL, "--draw").out.splitlines()
    assert lines[3].startswith("rank 3")
    assert any(line.startswith("makespan") for line in lines)


def test_a_drawing_is_no_json(refused):
    assert "use one of them" in refused(CALL, "--draw", "--json")
