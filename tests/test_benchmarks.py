"""Benchmarks that read other projects' data say what is absent instead of showing a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "call",
    ["fuzz_traces", "trace_reading", "replay_primus", "kernel floor", "accuracy table ."],
)
def test_data_that_are_absent_are_named(call, tmp_path):
    script, *arguments = call.split()
    command = [sys.executable, ROOT / f"benchmarks/{script}.py", *arguments]
    environment = {**os.environ, "UNBUBBLE_SHARED": str(tmp_path / "none")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"{script}.py: ")
    assert done.stderr.count("\n") == 1
