"""Data of other projects that the tests read where it is, beside the repository.

`shared("reference/x.json")` is a file of the folder `../shared`, or of the one that the environment
variable UNBUBBLE_SHARED names; without it the test is skipped.
"""

import os
from pathlib import Path

import pytest


def shared(name: str) -> Path:
    """The path of a shared file or folder; skips the test where there is none."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    path = Path(os.environ.get("UNBUBBLE_SHARED", beside)) / name
    if not path.exists():
        pytest.skip(f"shared/ is absent: no {path}")
    return path
