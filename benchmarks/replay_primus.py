"""Replay of a measured run (Primus, 8 MI300X, 1F1B p=8 m=16, 20 iterations).

    python benchmarks/replay_primus.py [FOLDER]

Prints the measured total and the replay of every iteration from its exact durations, the median
iteration from each rank's medians, and the iterations that straggle.
"""

import json
import os
import sys
from pathlib import Path
from statistics import median

from unbubble.simulate.replay import replay, stragglers, usual_durations
from unbubble.trace import read


def main() -> None:
    beside = Path(__file__).resolve().parents[2] / "shared"
    default = Path(os.environ.get("UNBUBBLE_SHARED", beside)) / "measured/primus_mi300x/pp8"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    trace = read([folder])
    timelines = [trace.pipelines_of(step)[0].timeline for step in trace.steps]
    first = json.loads((folder / "pp_rank_0.json").read_text())
    totals = [first[str(step)]["total"] for step in trace.steps]
    print("iteration   measured ms   replayed ms    error")
    errors = []
    for step, timeline, total in zip(trace.steps, timelines, totals, strict=True):
        assert timeline is not None
        replayed = replay(timeline).makespan / 1e6
        errors.append(replayed / total - 1)
        print(f"{step:9}   {total:11.1f}   {replayed:11.1f}   {errors[-1]:6.2%}")
    print(f"worst after the first: {max(map(abs, errors[1:])):.2%}")
    predicted = replay(timelines[0], usual_durations(timelines)).makespan / 1e6
    middle = median(totals)
    print(f"from medians: {predicted:.1f} ms, median iteration {middle:.1f} ms, "
          f"error {predicted / middle - 1:.2%}")  # fmt: skip
    for straggler in stragglers(timelines):
        print(
            f"iteration {trace.steps[straggler.step]} straggles by {straggler.late / 1e6:.0f} ms: "
            f"{straggler.action} on rank {straggler.rank} took {straggler.excess / 1e6:.0f} ms "
            "longer than usual"
        )


if __name__ == "__main__":
    main()
