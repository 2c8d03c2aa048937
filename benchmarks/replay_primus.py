"""Replay of a measured run (Primus, 8 MI300X, 1F1B p=8 m=16, 20 iterations).

    python benchmarks/replay_primus.py [FOLDER]

Prints the measured total and the replay of every iteration from the exact durations of its actions,
alone and with what inputs were seen to take on their way to an idle rank (the trace records no
transfer; the first iteration sets up the connections); the median iteration from each rank's
medians; and the iterations that straggle.
"""

import json
import sys
from pathlib import Path
from statistics import median

from data import absent, shared

from unbubble import InputError
from unbubble.simulate.replay import replay, seen_lags, stragglers, usual_durations
from unbubble.trace import read


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else shared("measured/primus_mi300x/pp8")
    if not (folder / "pp_rank_0.json").is_file():
        absent(f"{folder}: no pp_rank_0.json; a folder of Primus's records was expected")
    try:
        trace = read([folder])
    except InputError as error:
        absent(str(error))
    timelines = [trace.pipelines_of(step)[0].timeline for step in trace.steps]
    first = json.loads((folder / "pp_rank_0.json").read_text())
    totals = [first[str(step)]["total"] for step in trace.steps]
    print("iteration  measured ms  actions alone ms   error  with inputs ms   error")
    errors = []
    for step, timeline, total in zip(trace.steps, timelines, totals, strict=True):
        assert timeline is not None
        actions = replay(timeline).makespan / 1e6
        inputs = replay(timeline, lags=seen_lags(timeline)).makespan / 1e6
        errors.append((abs(actions / total - 1), abs(inputs / total - 1)))
        print(f"{step:9}  {total:11.1f}  {actions:16.1f} {actions / total - 1:7.2%}  "
              f"{inputs:14.1f} {inputs / total - 1:7.2%}")  # fmt: skip
    alone, whole = zip(*errors, strict=True)
    print(f"worst: actions alone {max(alone):.2%}, after the first iteration {max(alone[1:]):.2%}; "
          f"with inputs {max(whole):.2%}")  # fmt: skip
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
