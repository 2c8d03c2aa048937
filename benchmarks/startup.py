"""How long a whole call of the command line takes, beside `python -c pass` in the same run.

    python benchmarks/startup.py [ROUNDS]

Prints medians in milliseconds and their ratio to the empty interpreter; calls take turns, so that
a busy machine slows them alike, and one call of each before fills the bytecode caches, as an
installation does. Exit status 3 where `bubble` takes more than 6 times as long.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUBBLE = ["bubble", "-p", "8", "-m", "64", "--json"]
SIMULATE = ["simulate", "--schedule", "1f1b", "-p", "8", "-m", "64", "--json"]
LIMIT = 6


def main(rounds: int) -> int:
    python = sys.executable
    script = Path(python).with_name("unbubble")
    calls = {
        "python -c pass": [python, "-c", "pass"],
        "python -m unbubble bubble": [python, "-m", "unbubble", *BUBBLE],
        "python -m unbubble --version": [python, "-m", "unbubble", "--version"],
        "python -m unbubble simulate": [python, "-m", "unbubble", *SIMULATE],
    }
    if script.exists():
        calls["unbubble bubble"] = [str(script), *BUBBLE]
    # bytecode is kept, in a folder of its own
    with tempfile.TemporaryDirectory() as cache:
        taken = measure(calls, rounds, {**os.environ, "PYTHONPYCACHEPREFIX": cache})
    empty = statistics.median(taken["python -c pass"])
    ratios = {name: statistics.median(times) / empty for name, times in taken.items()}
    for name, ratio in ratios.items():
        print(f"{name:<30} {ratio * empty:7.1f} ms  × {ratio:.2f}")
    worst = max(ratio for name, ratio in ratios.items() if name.endswith("bubble"))
    print(f"bubble takes {worst:.2f} times an empty interpreter; at most {LIMIT} is the aim")
    return 0 if worst <= LIMIT else 3


def measure(
    calls: dict[str, list[str]], rounds: int, environment: dict[str, str]
) -> dict[str, list[float]]:
    """Milliseconds of every call in every round but the first."""
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            subprocess.run(call, stdout=subprocess.DEVNULL, check=True, env=environment)
            taken[name].append(1e3 * (time.perf_counter() - start))
    return {name: times[1:] for name, times in taken.items()}


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
