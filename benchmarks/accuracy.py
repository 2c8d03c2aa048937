"""How well the simulation predicts measured steps.

    python benchmarks/accuracy.py measure FOLDER [--steps N] [--tries N] [--real 0,1,2]
                                                 [--emulated 4,8]
    python benchmarks/accuracy.py table FOLDER [-v]

`measure` runs schedules on this machine and keeps every step in FOLDER; `table` predicts them:

    replay      a recorded step from its own durations: whether the structure is right
    emulated    4 and 8 processes whose stages sleep; costs observed at m = 8, steps of m = 16, 32
    observed    real compute on 2 processes; costs observed in one schedule at one m, steps of
                another schedule at another m in the same launch
    solo        the same steps from a profile without any pipeline
    one factor  the same, all its times multiplied by what one pipeline (1F1B, m = 8) of the same
                launch took more

A case is one schedule at one m, or one pair of such; its error is that of the median step. Cases
whose odd and even steps differ by more than 2 % are rejected and counted: the machine was noisy.
With `--tries` a launch of which a fifth and more is noisy is made again; the last one counts.
"""

import argparse
import json
import sys
from array import array
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import NamedTuple

from data import absent

from unbubble import InputError
from unbubble.action import JOINED, RECEIVE_OF, Action, receive_for, receive_of, unpack
from unbubble.costs import Costs
from unbubble.costs_file import dump_costs, load_costs
from unbubble.families import generate
from unbubble.partition import stage_costs
from unbubble.prediction import lowered, predict
from unbubble.runtime.profile import profile
from unbubble.runtime.run import Setup, run
from unbubble.schedule import Schedule
from unbubble.schedule.lowering import compute_only
from unbubble.simulate import Timeline, simulate
from unbubble.simulate.replay import timeless
from unbubble.trace.costs import observed_costs
from unbubble.trace.recording import dump_recording, load_recording

ASKED = {
    "replay": (0.005, 0.015),
    "emulated": (0.01, 0.02),
    "observed": (0.03, 0.08),
    "solo": (0.10, 0.16),
    "one factor": (0.05, 0.12),
}
"""The error of the median case and of the worst that are asked for."""
NOISY = 0.02
MOST_REJECTED = 0.2

MODEL = "unbubble.runtime.decoder:small"
SPLITS = {2: (7, 5), 4: (4, 3, 3, 2)}
GROUPS = (("gpipe", "1f1b"), ("looped-bfs", "interleaved-1f1b"), ("interleaved-zb", "zb-v"))
"""Schedules with the same stages and the same kinds of backward predict each other."""
REAL_M = (4, 8, 16)
REFERENCE = ("1f1b", 8)

EMULATED_M = (8, 16, 32)
UNEVEN = (1.0, 0.7, 1.35, 0.85, 1.2, 0.95, 1.1, 0.8)
LEAST_S = 0.0145
EMULATED = ("1f1b", "interleaved-1f1b", "zb-v", "custom")


class Case(NamedTuple):
    """A measured schedule, and the costs that predict it."""

    name: str
    steps: list[Timeline]
    costs: Costs


def custom(ranks: int, microbatches: int) -> Schedule:
    """An order that no family makes: 1F1B with split backwards, each W two microbatches late."""
    rows = []
    for rank in range(ranks):
        warm = min(microbatches, ranks - rank + 1)
        row = [f"{rank}F{i}" for i in range(warm)]
        for i in range(microbatches):
            row.append(f"{rank}I{i}")
            if i >= 2:
                row.append(f"{rank}W{i - 2}")
            if i + warm < microbatches:
                row.append(f"{rank}F{i + warm}")
        late = range(max(0, microbatches - 2), microbatches)
        rows.append([*row, *(f"{rank}W{i}" for i in late)])
    return Schedule.of(rows, name="custom")


def measure_emulated(folder: Path, ranks: int, steps: int) -> None:
    for name in EMULATED:
        orders = [
            custom(ranks, m) if name == "custom" else generate(name, ranks, m) for m in EMULATED_M
        ]
        stages = orders[0].num_stages
        times = [[LEAST_S * UNEVEN[s % len(UNEVEN)]] * 3 for s in range(stages)]
        target = f"unbubble.runtime.emulated:sleeping({json.dumps(times)})"
        setups = [Setup(lowered(order), [1] * stages) for order in orders]
        for m, ran in zip(EMULATED_M, launch(setups, target, steps), strict=True):
            dump_recording(folder / f"emulated.{ranks}.{name}.{m}.json", ran.steps)


def measure_real(folder: Path, number: int, steps: int) -> bool:
    """Whether the machine was quiet."""
    group = GROUPS[number]
    print(f"profiling before {', '.join(group)}", flush=True)
    layers = profile(MODEL, rounds=12).costs
    dump_costs(folder / f"profile.{number}.json", layers, rows="layers")
    made = [(name, m) for name in group for m in REAL_M]
    if REFERENCE not in made:
        made.append(REFERENCE)
    orders = [lowered(generate(name, 2, m)) for name, m in made]
    setups = [Setup(order, SPLITS[order.num_stages]) for order in orders]
    noisy = 0
    for (name, m), ran in zip(made, launch(setups, MODEL, steps), strict=True):
        dump_recording(folder / f"real.{number}.{name}.{m}.json", ran.steps)
        noisy += noise(ran.steps) > NOISY
    print(f"{noisy} of {len(made)} noisy", flush=True)
    return noisy < MOST_REJECTED * len(made)


def launch(setups: list[Setup], target: str, steps: int) -> list:
    names = ", ".join(f"{s.schedule.name} m={s.schedule.microbatches}" for s in setups)
    print(f"running {steps} steps of {names}", flush=True)
    return run(setups, target, steps=steps, warmup=2, verify=False)


def replayed(step: Timeline) -> Timeline:
    """The step simulated from its own durations and transfers."""
    schedule = step.schedule
    posted: dict[int, int] = {}
    for codes, ends in zip(schedule.codes, step.ends, strict=True):
        posted |= dict(zip(codes, ends, strict=True))
    wire: dict[Action | None, int] = {}
    for transfer in step.transfers:
        receive = receive_of(transfer.action)
        posts = transfer.action.codes + receive.codes
        wire[receive] = transfer.end - max(posted[code] for code in posts)
    durations, lags = [], []
    for codes, starts, ends in zip(schedule.codes, step.starts, step.ends, strict=True):
        row = array("q", map(int.__sub__, ends, starts))
        for i, code in enumerate(codes):
            row[i] *= not code & JOINED  # a pair's time stands at its second code
        row[0] = ends[0]  # ranks do not begin at the same moment
        for i, action in enumerate(map(unpack, codes[:-1])):
            if action.kind in RECEIVE_OF:
                # data that arrive before their send returns: its rest belongs to what follows it
                early = max(min(0, wire.get(receive_of(action), 0)), -row[i])
                row[i] += early
                row[i + 1] -= early
        durations.append(row)
        lags.append(array("q", (max(0, wire.get(receive_for(unpack(c)), 0)) for c in codes)))
    return simulate(schedule, timeless(schedule), durations=durations, lags=lags)


def load(folder: Path, pattern: str) -> dict[str, list[Timeline]]:
    return {path.stem: load_recording(path).steps for path in sorted(folder.glob(pattern))}


def emulated_cases(folder: Path) -> Iterator[Case]:
    measured = load(folder, "emulated.*.json")
    for name, steps in measured.items():
        kind, ranks, schedule, m = name.split(".")
        if int(m) != EMULATED_M[0]:
            source = measured[f"{kind}.{ranks}.{schedule}.{EMULATED_M[0]}"]
            yield Case(name, steps, observed_costs(source))


def real_steps(folder: Path) -> Iterator[tuple[int, str, int, list[Timeline]]]:
    """Group, schedule, m and steps of what computed, the references of other groups left out."""
    for name, steps in load(folder, "real.*.json").items():
        _, group, schedule, m = name.split(".")
        if schedule in GROUPS[int(group)]:
            yield int(group), schedule, int(m), steps


def observed_cases(folder: Path) -> Iterator[Case]:
    measured = {(g, s, m): steps for g, s, m, steps in real_steps(folder)}
    for (group, schedule, m), steps in measured.items():
        for (g, other, n), source in measured.items():
            if g == group and other != schedule and n != m:
                yield Case(f"{schedule} m={m} from {other} m={n}", steps, observed_costs(source))


def solo_costs(folder: Path, group: int, stages: int) -> Costs:
    return stage_costs(load_costs(folder / f"profile.{group}.json"), SPLITS[stages])


def solo_cases(folder: Path) -> Iterator[Case]:
    for group, schedule, m, steps in real_steps(folder):
        costs = solo_costs(folder, group, steps[0].schedule.num_stages)
        yield Case(f"{schedule} m={m}", steps, costs)


def factor_cases(folder: Path) -> Iterator[Case]:
    factors: dict[int, Fraction] = {}
    for group, schedule, m, steps in real_steps(folder):
        if group not in factors:
            name, n = REFERENCE
            reference = load_recording(folder / f"real.{group}.{name}.{n}.json").steps
            expected = predicted(Case(name, reference, solo_costs(folder, group, 2)))
            factors[group] = Fraction(step_time(reference) / expected).limit_denominator(10**6)
        if (schedule, m) != REFERENCE:
            costs = solo_costs(folder, group, steps[0].schedule.num_stages)
            scaled = replace(costs, speed=dict.fromkeys(range(2), factors[group]))
            yield Case(f"{schedule} m={m}, x {float(factors[group]):.3f}", steps, scaled)


def step_time(steps: list[Timeline]) -> float:
    return median(step.makespan for step in steps) / 1e9


def predicted(case: Case) -> float:
    order = lowered(compute_only(case.steps[0].schedule))
    return predict(order, case.costs).makespan / case.costs.ticks_per_unit


def noise(steps: list[Timeline]) -> float:
    """How much the odd and the even steps differ."""
    return abs(step_time(steps[::2]) / step_time(steps[1::2]) - 1)


def table(folder: Path, verbose: bool) -> int:
    """Print the table; 1 if an error is larger than asked for or a row is not measured."""
    everything = {
        "emulated": emulated_cases,
        "observed": observed_cases,
        "solo": solo_cases,
        "one factor": factor_cases,
    }
    rows: dict[str, list[tuple[str, float, float]]] = {"replay": []}
    paths = sorted([*folder.glob("emulated.*.json"), *folder.glob("real.*.json")])
    if not paths:
        absent(f"{folder}: nothing was measured there; `accuracy.py measure {folder}` does it")
    for path in paths:
        steps = load_recording(path).steps
        errors = [replayed(step).makespan / step.makespan - 1 for step in steps]
        rows["replay"].append((path.stem, median(errors), 0.0))
    for row, cases in everything.items():
        if list(folder.glob("emulated.*.json" if row == "emulated" else "real.*.json")):
            rows[row] = [
                (case.name, predicted(case) / step_time(case.steps) - 1, noise(case.steps))
                for case in cases(folder)
            ]
    missed = 0
    print(f"{'prediction':12}{'cases':>6}{'rejected':>9}{'median':>9}{'worst':>9}   asked for")
    for row, found in rows.items():
        kept = [abs(error) for _, error, noisy in found if noisy <= NOISY]
        rejected = len(found) - len(kept)
        asked = ASKED[row]
        verdict = "not measured: too noisy"
        middle, worst = (median(kept), max(kept)) if kept else (float("nan"), float("nan"))
        if kept and rejected <= MOST_REJECTED * len(found):
            met = middle <= asked[0] and worst <= asked[1]
            verdict = f"{asked[0]:.1%} / {asked[1]:.1%} {'met' if met else 'MISSED'}"
            missed += not met
        else:
            missed += 1
        print(f"{row:12}{len(found):6}{rejected:9}{middle:9.2%}{worst:9.2%}   {verdict}")
        if verbose:
            for name, error, noisy in found:
                print(f"    {name:48}{error:+8.2%}   odd/even {noisy:.2%}")
    return int(missed > 0)


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["measure", "table"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--real", default="0,1,2", help="groups of schedules that compute")
    parser.add_argument("--emulated", default="4,8", help="numbers of processes that sleep")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--tries", type=int, default=1, help="launches until the machine is quiet")
    parser.add_argument("-v", "--verbose", action="store_true", help="every case")
    options = parser.parse_args()
    if options.what == "table":
        try:
            return table(options.folder, options.verbose)
        except InputError as error:  # some file of a measurement that was cut short
            absent(str(error))
    options.folder.mkdir(parents=True, exist_ok=True)
    for number in numbers(options.real):
        for _ in range(options.tries):
            if measure_real(options.folder, number, options.steps):
                break
    for ranks in numbers(options.emulated):
        measure_emulated(options.folder, ranks, options.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
