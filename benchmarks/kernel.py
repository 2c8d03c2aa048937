"""The simulator's speed, beside its anchors in the same run.

    python benchmarks/kernel.py [floor] [python] [pytorch] [jitter] [curve] [--floor-source floor.c]

floor    131,072 actions (1F1B, p=64, m=1024) against the longest path in plain C: in any order, and
         in a known one
python   the same 131,072 actions by the kernel's file as it stands, without a compiler
pytorch  the lowered interleaved 1F1B of p=16 v=4 m=256 against PyTorch's unit-step simulator
jitter   10,000 random draws of 1F1B, p=16 m=64
curve    seconds and bytes an action from ten thousand to ten million actions, the schedule included

Times are the best of several runs, the two sides in turn. `--floor-source` (or UNBUBBLE_SHARED) is
where floor.c is, by default ../shared/floor/floor.c beside the repository.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from unittest.mock import patch

from data import absent, place
from peak import peak_mb

from unbubble.costs import Costs
from unbubble.families import generate
from unbubble.schedule import Schedule
from unbubble.schedule.lowering import lower
from unbubble.simulate import kernel, program, simulate, simulation, timeline
from unbubble.simulate.jitter import Spread, jittered
from unbubble.simulate.program import Program

ROUNDS = 15


def best(make: Callable[[], object], runs: int = 7) -> float:
    """The shortest of several runs, in seconds."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        make()
        times.append(time.perf_counter() - start)
    return min(times)


def floor(source: Path) -> None:
    """Against plain C; in either order at most 1.3 times its time is asked for."""
    p, m = 64, 1024
    order = generate("1f1b", p, m)
    program = Program(order, Costs.uniform(order.placement, forward=10, backward=20))
    known = program.order()
    times = known.sorted(program.duration), known.sorted(program.lag)
    ends = array("q", bytes(8 * program.nodes))
    known_ends = known.buffer()
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder, "floor")
        subprocess.run(["cc", "-O3", "-o", binary, source], check=True)
        c_any, c_known, any_order, known_order = [], [], [], []
        for _ in range(ROUNDS):
            shown = subprocess.run([binary, str(p), str(m), "30"], capture_output=True, text=True)
            found = re.search(r"any order ([\d.]+) us  known order ([\d.]+) us", shown.stdout)
            assert found is not None, shown
            c_any.append(float(found[1]) / 1e6)
            c_known.append(float(found[2]) / 1e6)
            any_order.append(best(lambda: program.run(ends=ends), 30))
            known_order.append(best(lambda: known.run(*times, ends=known_ends), 30))
    assert max(ends) == max(known_ends) == (m + p - 1) * 30
    linked = best(lambda: Program(order, program.costs))
    whole = best(lambda: simulate(order, program.costs))
    for what, ours, theirs in (
        ("any order", min(any_order), min(c_any)),
        ("known order", min(known_order), min(c_known)),
    ):
        print(f"floor  {what:<12} ours {ours * 1e6:7.1f} us   C {theirs * 1e6:7.1f} us   "
              f"ratio {ours / theirs:.2f}  (asked for: 1.3)")  # fmt: skip
    print(f"floor  linking {linked * 1e3:.1f} ms; from Schedule to Timeline {whole * 1e3:.1f} ms")


def python() -> None:
    """Against the same file run by Python."""
    order = generate("1f1b", 64, 1024)
    costs = Costs.uniform(order.placement, forward=10, backward=20)
    compiled = best(lambda: simulate(order, costs))
    spec = spec_from_file_location("uncompiled_kernel", Path(program.__file__).parent / "kernel.py")
    assert spec is not None
    assert spec.loader is not None
    uncompiled = module_from_spec(spec)
    spec.loader.exec_module(uncompiled)
    with ExitStack() as patched:
        for module in (program, simulation, timeline):
            patched.enter_context(patch.object(module, "kernel", uncompiled))
        plain = best(lambda: simulate(order, costs), 3)
    print(f"python  from Schedule to Timeline {plain * 1e3:.0f} ms without a compiler, compiled "
          f"{compiled * 1e3:.1f} ms: {plain / compiled:.0f} times faster")  # fmt: skip


def pytorch() -> None:
    """Against torch's `_simulate_comms_compute`, which knows no times; 300 times its speed is
    asked for."""
    from torch.distributed.pipelining.schedules import _Action, _simulate_comms_compute

    order = lower(generate("interleaved-1f1b", 16, 256, 4))
    costs = Costs.uniform(order.placement, p2p=1)
    rows = {
        rank: [_Action.from_str(str(action)) for action in order.actions(rank)]
        for rank in range(order.ranks)
    }
    rank_of, stages = order.placement.rank_of, order.num_stages
    theirs = min(
        best(lambda: _simulate_comms_compute(rows, rank_of.__getitem__, stages), 1)
        for _ in range(3)
    )
    program = Program(order, costs)
    run = best(program.run, 30)
    link = best(lambda: Program(order, costs))
    whole = best(lambda: simulate(order, costs))
    print(f"pytorch  {len(order):,} actions: PyTorch {theirs * 1e3:.0f} ms")
    for what, ours in (
        ("simulation alone (linked before)", run),
        ("linking and simulation", link + run),
        ("from Schedule to Timeline", whole),
    ):
        print(f"pytorch  {what:<34} {ours * 1e3:6.2f} ms   {theirs / ours:6.0f} times faster")


def jitter() -> None:
    """10,000 draws; at most 2 s on one core are asked for."""
    order = generate("1f1b", 16, 64)
    costs = Costs.uniform(order.placement, forward=10**7, backward=2 * 10**7, p2p=10**5)
    draw = Spread(action=0.05, transfer=0.1)
    steps = jittered(order, costs, draw, draws=10_000)
    seconds = best(lambda: jittered(order, costs, draw, draws=10_000), 3)
    shown = " / ".join(f"{steps.percentile(q) / steps.planned:.4f}" for q in (50, 95, 99))
    print(f"jitter  10,000 draws in {seconds:.2f} s; P50/P95/P99 {shown} of the plan")


def curve() -> None:
    """A process each, so that the peak of memory is its own."""
    print("curve      p       m      actions   seconds   ns/action   bytes/action")
    for p, m in ((16, 320), (32, 1600), (64, 8192), (256, 4096), (256, 8192), (256, 20480)):
        shown = subprocess.run(
            [sys.executable, __file__, "--one", str(p), str(m)], capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        print(shown.stdout, end="")


def one(p: int, m: int) -> None:
    """Schedule to Timeline and its first figures, for one size."""
    before = peak_mb()
    order = one_f_one_b(p, m)
    costs = Costs.uniform(order.placement, forward=10, backward=20)
    start = time.perf_counter()
    timeline = simulate(order, costs)
    assert timeline.makespan == (m + p - 1) * 30
    assert timeline.bubble_fraction > 0
    seconds = time.perf_counter() - start
    size = peak_mb() - before
    print(f"       {p:5} {m:7} {len(order):12,} {seconds:9.3f} {seconds / len(order) * 1e9:11.1f} "
          f"{size * 2**20 / len(order):14.0f}")  # fmt: skip


def one_f_one_b(p: int, m: int) -> Schedule:
    """1F1B, its rows made without a loop over their actions."""
    rows = []
    for rank in range(p):
        ahead = min(p - rank - 1, m)
        step = 1 << 30
        forward = array("q", range(step | rank << 6, (m + 1) * step, step))
        backward = array("q", range(step | rank << 6 | 1, (m + 1) * step, step))
        row = forward[:ahead]
        steady = array("q", bytes(16 * (m - ahead)))
        steady[0::2] = forward[ahead:]
        steady[1::2] = backward[: m - ahead]
        rows.append(row + steady + backward[m - ahead :])
    return Schedule.of_codes(rows, generate("1f1b", p, 1).placement, name="1f1b")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", default=[])
    parser.add_argument("--floor-source", type=Path)
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(*given.one)
        return
    if not kernel.__file__.endswith((".so", ".pyd")):
        print("the kernel is not compiled here: every figure is plain Python's")
    parts = given.parts or ["floor", "python", "pytorch", "jitter", "curve"]
    source = given.floor_source or place("floor/floor.c")
    if "floor" in parts and source.is_file():
        floor(source)
    elif "floor" in parts:
        reason = f"no {source}; --floor-source names the longest path in plain C"
        if given.parts or given.floor_source:  # it was asked for
            absent(reason)
        print(f"floor  left out: {reason}")
    if "python" in parts:
        python()
    if "pytorch" in parts:
        pytorch()
    if "jitter" in parts:
        jitter()
    if "curve" in parts:
        curve()


if __name__ == "__main__":
    main()
