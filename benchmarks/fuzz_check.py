"""The check against its oracle on random schedules and mutations of them.

    python benchmarks/fuzz_check.py --count 100000 --seed 0

Case number k of seed s is always the same schedule, so that a campaign can be cut into pieces
(`--first`) and a case be repeated (`--first K --count 1 --show`). Every case is checked under one
kind of sends: the faults and the blocked actions must be the oracle's. What passes without a
fault must also simulate, and a file of it must give the same answer; every tenth case is a file
with cells gone wrong, which must be judged or refused in one sentence.
"""

import argparse
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.oracle import proof
from tests.strategies import garbled, mutated, random_schedule

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.schedule import format_csv
from unbubble.schedule.check import SENDS, check, check_rows
from unbubble.schedule.pytorch_csv import parse_rows
from unbubble.simulate import Deadlock, simulate


def case(seed: int, number: int):
    """The schedule of a case, the kind of sends and how it came to be."""
    rng = random.Random(f"{seed} {number}")
    schedule = random_schedule(rng)
    kind = "complete"
    if rng.random() < 0.85:
        schedule, kind = mutated(rng, schedule), "mutated"
    return schedule, rng.choice(SENDS), kind, rng


def disagreement(schedule, send, kind, rng, tally) -> str:
    """What is wrong with our answer for a case, or nothing."""
    rows = [list(schedule.actions(rank)) for rank in range(schedule.ranks)]
    report = check(schedule, send)
    faults = {tuple(fault[:3]) for fault in report.faults}
    blocked = {tuple(action[:2]) for action in report.deadlock}
    tally[f"{kind}: " + ("faulty" if faults else "deadlocked" if blocked else "good")] += 1
    for words in {re.sub("[0-9]+", "n", fault.fault) for fault in report.faults}:
        tally[f"fault: {words}"] += 1
    expected = proof.faults(rows, schedule.placement, schedule.flush)
    stuck = proof.blocked(rows, schedule.placement, send)
    if kind == "complete" and faults:
        return f"a complete schedule has faults {faults}"
    if faults != expected:
        return f"faults: ours alone {faults - expected}, oracle's alone {expected - faults}"
    if blocked != stuck:
        return f"blocked: ours {blocked}, oracle's {stuck}"
    if not faults and (report.good or not schedule.with_comms) and _runs(schedule) != report.good:
        return f"the simulator says otherwise, blocked: {blocked}"
    try:
        text = format_csv(schedule)
        again = parse_rows(text)
    except InputError:
        return ""  # what the file format refuses
    return _file(again, schedule, report, send) or _garbled(text, send, rng, tally)


def _runs(schedule) -> bool:
    try:
        simulate(schedule, Costs.uniform(schedule.placement, backward=2, backward_input=1))
    except Deadlock:
        return False
    return True


def _file(rows, schedule, report, send) -> str:
    from_file = check_rows(rows, send)
    home = proof.homes(rows)
    if home == dict(enumerate(schedule.placement.rank_of)) and from_file != report:
        return f"from a file: {from_file}"
    return ""


def _garbled(text, send, rng, tally) -> str:
    if rng.random() < 0.9:
        return ""
    try:
        good = check_rows(parse_rows(garbled(rng, text)), send).good
        tally["file gone wrong: " + ("good all the same" if good else "faults found")] += 1
    except InputError:
        tally["file gone wrong: refused"] += 1
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print the schedules")
    options = parser.parse_args()
    tally: Counter[str] = Counter()
    wrong = 0
    slowest = 0.0
    begin = time.perf_counter()
    for number in range(options.first, options.first + options.count):
        one, send, kind, rng = case(options.seed, number)
        if options.show:
            print(f"case {number}, {send} sends, {one.placement}")
            for rank in range(one.ranks):
                print("  ", ",".join(map(str, one.actions(rank))))
        since = time.process_time()
        problem = disagreement(one, send, kind, rng, tally)
        slowest = max(slowest, time.process_time() - since)
        if problem:
            wrong += 1
            print(f"case {number} ({send} sends): {problem}")
    for what, count in sorted(tally.items()):
        print(f"{count:8}  {what}")
    print(
        f"{options.count} cases, {wrong} disagreements, {time.perf_counter() - begin:.0f} s, "
        f"slowest case {slowest * 1e3:.0f} ms"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
