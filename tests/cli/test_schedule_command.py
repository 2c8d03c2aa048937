"""`unbubble schedule`: list, show, export, check, their exit statuses and their JSON."""

import json

import pytest

from unbubble.cli import invoke
from unbubble.families import families


@pytest.fixture
def run(capsys):
    def run(*args):
        status = invoke(["schedule", *map(str, args)])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    return run


def test_list_names_every_family(run):
    status, out, _ = run("list", "--json")
    assert status == 0
    assert [row["name"] for row in json.loads(out)["schedules"]] == list(families())
    status, out, _ = run("list")
    assert status == 0
    assert all(family.summary in out for family in families().values())


def test_show_draws_the_schedule(run):
    status, out, _ = run("show", "gpipe", "-p", 2, "-m", 2)
    assert status == 0
    assert out.splitlines()[:2] == ["rank 0  0 1 . . . a a b b", "rank 1  . 0 1 a a b b . ."]


def test_export_and_check_a_file(run, tmp_path):
    path = tmp_path / "order.csv"
    status, out, _ = run("export", "1f1b", "-p", 4, "-m", 8, "--with-comms", "-o", path)
    assert (status, "cannot deadlock" in out) == (0, True)
    status, out, _ = run("check", path)
    assert (status, "free of deadlock under blocking sends" in out) == (0, True)
    assert path.read_text().startswith("0UNSHARD,0F0,0SEND_F0,")


def test_export_prints_what_it_would_write(run, tmp_path):
    _, printed, _ = run("export", "gpipe", "-p", 2, "-m", 2)
    assert printed == "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
    path = tmp_path / "mine.csv"
    path.write_text(printed)
    _, lowered, _ = run("export", path, "--with-comms", "--plain")
    assert lowered.splitlines()[0] == "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1"


def test_a_file_gets_its_receives_posted_anew(run, tmp_path):
    path = tmp_path / "theirs.csv"
    run("export", "interleaved-1f1b", "-p", 2, "-m", 4, "--with-comms", "-o", path)
    _, again, _ = run("export", path, "--with-comms", "--receive", "smart")
    _, smart, _ = run(
        "export", "interleaved-1f1b", "-p", 2, "-m", 4, "--with-comms", "--receive", "smart"
    )
    assert again == smart != path.read_text()
    assert run("export", path)[1] == run("export", "interleaved-1f1b", "-p", 2, "-m", 4)[1]


def test_faults_are_a_verdict_with_the_grid_marked(run, tmp_path):
    path = tmp_path / "order.csv"
    path.write_text("0F0,0F1,0B0,0B1\n1F1,1B0,1B1\n")
    status, out, _ = run("check", path)
    assert status == 3
    assert "rank 1, position 1, 1F0: missing" in out
    assert ">?1F0 1B0<" in out
    status, out, _ = run("check", path, "--json")
    answer = json.loads(out)
    assert status == 3
    assert answer["faults"] == [{"rank": 1, "position": 1, "action": "1F0", "fault": "missing"}]


def test_a_deadlock_names_the_blocked_actions(run, tmp_path):
    path = tmp_path / "order.csv"
    run("export", "1f1b", "-p", 2, "-m", 4, "--with-comms", "--receive", "just-in-time", "-o", path)
    status, out, _ = run("check", path, "--json")
    answer = json.loads(out)
    assert (status, answer["faults"]) == (3, [])
    assert answer["deadlock"] == ["0SEND_F1", "1SEND_B0"]
    assert answer["blocked"][0]["waits_for"] == "1RECV_F1"
    _, out, _ = run("check", path)
    assert "Under buffered and batched sends it is free of deadlock." in out
    assert run("check", path, "--send", "buffered")[0] == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["show", "gpipe"], "-p (ranks) is needed"),
        (["show", "gpipe", "-p", "0", "-m", "2"], "p (ranks) is 0"),
        (["show", "1f2b", "-p", "2", "-m", "2"], "did you mean"),
        (["show", "nothing.csv"], "No such file"),
        (["check", "nothing.csv"], "No such file"),
        (["export", "gpipe", "-p", "2", "-m", "2", "--plain"], "--with-comms"),
        (["export", "dualpipe", "-p", "2", "-m", "4"], "2 copies"),
    ],
)
def test_wrong_input_is_one_message(run, args, message):
    status, out, err = run(*args)
    assert (status, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("text", ["", "\n\n", "0F0,0F0junk\n", "0F0,,0Q0\n", "\x00\n", '"0F0'])
def test_a_file_that_is_no_schedule_is_wrong_input(run, tmp_path, text):
    path = tmp_path / "order.csv"
    path.write_text(text)
    status, out, err = run("check", path)
    assert (status, out) == (2, "")
    assert err.startswith("unbubble: order.csv: ")


def test_a_stage_on_two_ranks_is_a_fault_of_the_file(run, tmp_path):
    path = tmp_path / "order.csv"
    path.write_text("0F0,1F0,0B0,1B0\n1F0\n")
    status, out, _ = run("check", path, "--json")
    assert status == 3
    assert json.loads(out)["faults"][0]["action"] == "1F0"


def test_an_exported_file_with_faults_is_not_called_a_deadlock(run, tmp_path):
    path = tmp_path / "order.csv"
    path.write_text("0F0\n1F0,1B0\n")
    status, out, _ = run("export", path, "-o", tmp_path / "again.csv")
    assert status == 0
    assert "1 fault, see `unbubble schedule check`" in out
    assert "deadlock" not in out


def test_an_unknown_schedule_is_named_before_its_sizes_are_asked_for(run):
    status, _, err = run("show", "1f2b")
    assert status == 2
    assert "no schedule is called '1f2b'; did you mean 1f1b" in err


def test_an_export_as_json_says_what_it_holds(run, tmp_path):
    """It took no --json, which every command takes."""
    status, out, _ = run("export", "gpipe", "-p", 2, "-m", 2, "--json")
    assert status == 0
    assert json.loads(out) == {
        "schedule": "gpipe",
        "ranks": 2,
        "num_stages": 2,
        "microbatches": 2,
        "csv": "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n",
        "format": "compute_only",
        "faults": [],
        "deadlocks_under": [],
        "unit": "",
    }
    path = tmp_path / "order.csv"
    _, out, _ = run("export", "gpipe", "-p", 2, "-m", 2, "--with-comms", "--json", "-o", path)
    answer = json.loads(out)
    assert (answer["csv"], answer["format"]) == (str(path), "compute_comms")
    assert path.read_text().startswith("0UNSHARD,0F0,0SEND_F0,")


INFERENCE = "0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2RECV_F1,2F1\n"
INFERENCE += "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1\n"


def test_inference_has_no_backward(run, tmp_path):
    """Every rank of a ring sends first (sglang PR#23645): only the missing backwards were told."""
    path = tmp_path / "ring.csv"
    path.write_text(INFERENCE)
    assert len(json.loads(run("check", path, "--json")[1])["faults"]) == 6
    status, out, _ = run("check", path, "--forward-only", "--send", "rendezvous", "--json")
    answer = json.loads(out)
    assert (status, answer["send"], answer["faults"]) == (3, "blocking", [])
    assert answer["deadlock"] == ["0SEND_F1", "1SEND_F0"]
    assert run("check", path, "--forward-only", "--send", "buffered")[0] == 0
    assert run("check", path, "--forward-only", "--send", "batched")[0] == 0
    # with receives first where it is the neighbour's turn to send
    path.write_text("0F0,0SEND_F0,2RECV_F0,2F0,0F1,0SEND_F1,2RECV_F1,2F1\n" + INFERENCE.split()[1])
    assert run("check", path, "--forward-only")[0] == 0
    # what is there is proved as ever
    path.write_text(INFERENCE.replace("1F1,", ""))
    faults = json.loads(run("check", path, "--forward-only", "--json")[1])["faults"]
    assert [fault["action"] for fault in faults] == ["1F1"]


def test_a_printed_export_says_what_is_wrong_with_it(run, tmp_path):
    """Only a written one did; and forwards alone, which are inference, had faults."""
    path = tmp_path / "order.csv"
    path.write_text("0F0\n1F0,1B0\n")
    status, out, err = run("export", path)
    assert (status, out) == (0, "0F0\n1F0,1B0\n")
    assert "1 fault, see `unbubble schedule check`" in err
    jit = run("export", "1f1b", "-p", 4, "-m", 8, "--with-comms", "--receive", "just-in-time")
    assert "deadlocks under blocking sends" in jit[2]
    path.write_text(INFERENCE)
    assert run("export", path)[2] == ""
    assert "cannot deadlock" in run("export", path, "-o", tmp_path / "again.csv")[1]
