"""A thousand damaged traces: every one is refused by name, or answered with what is missing.

    python benchmarks/fuzz_traces.py [--count 1000] [--seed 0] [--only WAY]

The sources are the gloo traces, synthetic device traces and the single files of the other formats
under the shared folder. Prints what is not acceptable, and a table of the outcomes.
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from data import shared

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.trace.cuda_traces import write_cuda  # noqa: E402
from tests.trace.damage import HARMLESS, RAW_WAYS, WAYS, copied, fault_in, seeded  # noqa: E402

from unbubble.cli import invoke  # noqa: E402
from unbubble.costs import Costs  # noqa: E402
from unbubble.families import generate  # noqa: E402
from unbubble.simulate import simulate  # noqa: E402

GLOO = ("1F1B", "1F1B_annot", "GPipe", "Interleaved1F1B", "ZBVZeroBubble")


def sources(folder: Path) -> list[Path]:
    """Undamaged folders."""
    found = [copied(shared("traces/torch_gloo") / name, folder / name) for name in GLOO]
    found.append(copied(shared("measured/primus_mi300x/pp8"), folder / "primus"))
    found.append(copied(shared("traces/megatronapp"), folder / "megascan"))
    for name, ranks, virtual in (("1f1b", 3, None), ("zb-v", 2, None)):
        order = generate(name, ranks, 4, virtual)
        costs = Costs.uniform(order.placement, forward=90_000, backward_input=80_000,
                              backward_weight=100_000, p2p=7_000)  # fmt: skip
        (folder / f"cuda_{name}").mkdir()
        found.append(write_cuda(folder / f"cuda_{name}", simulate(order, costs), comm=9_000))
    return found


def answer(folder: Path) -> tuple[int, str, str]:
    """Exit status, standard output and error of `unbubble trace`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = invoke(["trace", str(folder), "--json"])
    return status, out.getvalue(), err.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only")
    options = parser.parse_args()
    outcomes: Counter[tuple[str, str]] = Counter()
    faults, slowest = 0, 0.0
    with tempfile.TemporaryDirectory() as place:
        good = [(f, json.loads(answer(f)[1])) for f in sources(Path(place) / "good")]
        binary = [
            copied(shared("traces/nsys/mock.sqlite"), Path(place) / "nsys"),
            copied(shared("traces/bytedance_straggler/trace-ST.parquet"), Path(place) / "bytes"),
        ]
        ways = [way for way in WAYS if options.only in (None, way.__name__)]
        for i in range(options.count):
            rng = seeded(options.seed * 1_000_003 + i)
            way, (source, right) = ways[i % len(ways)], rng.choice(good)
            if i % 20 == 19:
                way, source, right = rng.choice(RAW_WAYS), rng.choice(binary), None
            folder = copied(source, Path(place) / str(i))
            way(folder, rng)
            begin = time.perf_counter()
            status, out, err = answer(folder)
            slowest = max(slowest, time.perf_counter() - begin)
            fault = fault_in(status, out, err, right, harmless=way in HARMLESS)
            said = "refused" if status == 2 else "cannot tell"
            said = "as before" if '"unknown": []' in out else said
            outcomes[way.__name__, "FAULT" if fault else said] += 1
            if fault:
                faults += 1
                print(f"{i} {way.__name__} on {source.name}: {fault}")
    for (way, what), count in sorted(outcomes.items()):
        print(f"{way:<20} {what:<12} {count}")
    print(f"{options.count} damaged traces, {faults} faults, slowest answer {slowest:.2f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
