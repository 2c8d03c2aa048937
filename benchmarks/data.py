"""What a benchmark reads of other projects' data, which is not part of this one."""

import os
import sys
from pathlib import Path
from typing import NoReturn


def shared(name: str) -> Path:
    """A file or folder of `../shared`, or of the folder that UNBUBBLE_SHARED names.

    Without it the benchmark ends with status 2 and says what it wanted.
    """
    beside = Path(__file__).resolve().parents[2] / "shared"
    path = Path(os.environ.get("UNBUBBLE_SHARED", beside)) / name
    if not path.exists():
        absent(f"no {path}; UNBUBBLE_SHARED names the folder in which {name} is")
    return path


def absent(reason: str) -> NoReturn:
    """End the benchmark: what it measures is not here."""
    print(f"{Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
    raise SystemExit(2)
