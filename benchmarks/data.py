"""What a benchmark reads of other projects' data, which is not part of this one."""

import os
import sys
from pathlib import Path
from typing import NoReturn


def place(name: str) -> Path:
    """Where a file or folder of `../shared`, or of the folder that UNBUBBLE_SHARED names, is if it
    is there."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    return Path(os.environ.get("UNBUBBLE_SHARED", beside)) / name


def shared(name: str) -> Path:
    """The same; without it the benchmark ends with status 2 and says what it wanted."""
    path = place(name)
    if not path.exists():
        absent(f"no {path}; UNBUBBLE_SHARED names the folder in which {name} is")
    return path


def absent(reason: str) -> NoReturn:
    """End the benchmark: what it measures is not here."""
    print(f"{Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
    raise SystemExit(2)
