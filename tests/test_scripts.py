"""The environments that `make demo` and `make test` make."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
def test_the_torch_of_an_environment_is_reused(tmp_path):
    """Where PYTHON was in a virtual environment, as it nearly always is, its PyTorch was said to
    be used and was not there: gigabytes of another one were downloaded."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "src/unbubble/simulate").mkdir(parents=True)
    for name in ("scripts/environment", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "src/unbubble/simulate/kernel.py", tmp_path / "src/unbubble/simulate")
    offline = {"PIP_NO_INDEX": "1", "PYTHON": sys.executable}
    made = subprocess.run(
        [tmp_path / "scripts/environment", "torch"],
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | offline,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert f"with the torch of {sys.executable}" in made.stderr
    program = "from importlib.util import find_spec; print(find_spec('torch').origin)"
    found = subprocess.run(
        [tmp_path / ".venv/bin/python", "-I", "-c", program], capture_output=True, text=True
    )
    assert Path(found.stdout.strip()) == distribution("torch").locate_file("torch/__init__.py")
