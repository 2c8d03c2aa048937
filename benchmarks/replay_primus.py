"""Replay of a measured run (Primus, 8 MI300X, 1F1B p=8 m=16, 20 iterations).

    python benchmarks/replay_primus.py [FOLDER]

Prints the measured total and the replay of every iteration from the exact durations of its actions,
alone and with what inputs were seen to take on their way to an idle rank (the trace records no
transfer; the first iteration sets up the connections); the mean iteration from the costs of all but
the first; and the iterations that are late, with the action that took longer than usual.
"""

import json
import sys
from pathlib import Path
from statistics import fmean, median

from data import absent, shared

from unbubble import InputError, observed_costs, simulate
from unbubble.simulate.replay import replay, seen_lags
from unbubble.trace import read
from unbubble.trace.costs import usual
from unbubble.trace.stragglers import stragglers

LATE = 0.05


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
    predicted = simulate(timelines[0].schedule, observed_costs(timelines[1:])).length / 1e6
    mean = fmean(totals[1:])
    print(f"from costs: {predicted:.1f} ms, mean iteration {mean:.1f} ms, "
          f"error {predicted / mean - 1:.2%}")  # fmt: skip
    middle, times = median(timeline.length for timeline in timelines), usual(timelines)
    for step, timeline in zip(trace.steps, timelines, strict=True):
        if (late := timeline.length - middle) > LATE * middle:
            worst = stragglers(timeline, times)[0]
            print(f"iteration {step} is {late / 1e6:.0f} ms late: {worst.action} on rank "
                  f"{worst.rank} took {worst.excess / 1e6:.0f} ms longer than usual")  # fmt: skip


if __name__ == "__main__":
    main()
