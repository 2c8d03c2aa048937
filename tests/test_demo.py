"""The whole loop on a tiny model."""

import contextlib
import io
import json
from importlib.metadata import PackageNotFoundError

import pytest

from unbubble.cli import invoke
from unbubble.costs_file import load_costs
from unbubble.demo import demo
from unbubble.errors import InputError
from unbubble.plan import load_plan
from unbubble.runtime import launch
from unbubble.schedule import parse_csv
from unbubble.trace.recording import load_recording

TINY = "unbubble.runtime.decoder:tiny"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder, out, err = tmp_path_factory.mktemp("demo"), io.StringIO(), io.StringIO()
    line = f"demo --model {TINY} -m 4 --rounds 2 --steps 2 --json -o".split()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setenv("COLUMNS", "80")
        assert invoke([*line, str(folder)]) == 0
    return folder, json.loads(out.getvalue()), err.getvalue()


def test_both_plans_ran_with_equal_gradients(done):
    _, answer, _ = done
    assert answer["runs"].keys() == {"naive", "chosen"}
    assert answer["unit"] == "s"
    for run in answer["runs"].values():
        assert run["gradients"]["equal"]
        assert len(run["step_times_s"]) == 2
        assert run["error"] == pytest.approx(run["predicted_s"] / run["step_s"] - 1)
    assert answer["runs"]["naive"]["layers_per_stage"] == [4, 4]


def test_the_chosen_plan_is_the_fastest_predicted(done):
    _, answer, said = done
    compared = {row["schedule"]: row["predicted_s"] for row in answer["compared"]}
    assert {"naive", "gpipe", "1f1b", "interleaved-1f1b", "interleaved-zb", "zb-v"} <= set(compared)
    assert answer["runs"]["chosen"]["predicted_s"] == min(compared.values())
    assert all(name in said for name in compared)
    assert "error" in said


def test_all_it_says_fits_a_terminal(done):
    """Its sentences were wider."""
    lines = done[2].splitlines()
    assert any(line.startswith("rank 1 measured") for line in lines)
    assert max(map(len, lines)) <= 80


def test_everything_is_left_in_files_that_read_back(done):
    folder, answer, _ = done
    layers = load_costs(folder / "costs.json")
    assert layers.num_stages == answer["layers"] == 8
    for name in ("naive", "chosen"):
        plan = load_plan(folder / f"{name}.json")
        assert plan.model == TINY
        assert plan.layers == layers
        in_seconds = plan.prediction.makespan / plan.costs.ticks_per_unit
        assert in_seconds == answer["runs"][name]["predicted_s"]
        steps = load_recording(folder / f"{name}.recording.json").steps
        assert [s.in_unit(s.makespan) for s in steps] == answer["runs"][name]["step_times_s"]
        assert f"the {name} plan" in (folder / f"{name}.html").read_text()
        assert (folder / f"{name}.svg").read_text().startswith("<svg")
        assert json.loads((folder / f"{name}.trace.json").read_bytes())["traceEvents"]
    csv = (folder / "schedules" / "zb-v.csv").read_text()
    assert parse_csv(csv).splits_backward


def test_an_interrupt_keeps_what_was_found(tmp_path):
    def say(text):
        if text.startswith("running"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo(tmp_path, target=TINY, rounds=2, steps=2, say=say)
    assert load_costs(tmp_path / "costs.json").num_stages == 8
    assert load_plan(tmp_path / "chosen.json").layers_per_stage


@pytest.mark.parametrize(
    ("missing", "advice"),
    [("version", "needs PyTorch 2.13 and it is not"), ("find_spec", "pip install numpy")],
)
def test_what_is_missing_is_said_before_anything_starts(tmp_path, monkeypatch, missing, advice):
    """PyTorch comes without numpy, and the first profile ended with "Numpy is not available"."""

    def none(name):
        if missing == "version":
            raise PackageNotFoundError(name)

    monkeypatch.setattr(launch, missing, none)
    with pytest.raises(InputError, match=advice):
        demo(tmp_path / "made", target=TINY, say=pytest.fail)
    assert not (tmp_path / "made").exists()
