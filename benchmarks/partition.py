"""The bottleneck of our partition beside those of torchgpipe (and fairscale) and DeepSpeed.

    python benchmarks/partition.py [--torchgpipe blockpartition.py] [--deepspeed runtime/utils.py]

The others' functions are run from their own source files, taken from their packages:
`torchgpipe/balance/blockpartition.py` and `deepspeed/runtime/utils.py`. Prints how far each is
above the optimum, which a plain quadratic dynamic programme gives, and the time that it takes.
Exit status 3 where ours is not the optimum.
"""

import argparse
import ast
import random
import statistics
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import inf, sqrt
from pathlib import Path
from typing import Any

from unbubble.costs import Costs, Duration, StageCosts
from unbubble.partition import partition
from unbubble.schedule.placement import linear

Split = list[int]
Solver = Callable[[Sequence[int], int], Split]


def ours(loads: Sequence[int], stages: int) -> Split:
    rows = tuple(StageCosts(forward=Duration(x), backward=Duration(0)) for x in loads)
    return list(partition(Costs(stages=rows), linear(stages)).layers_per_stage)


def optimum(loads: Sequence[int], stages: int) -> int:
    """The smallest bottleneck, by the textbook's dynamic programme."""
    upto = [0, *accumulate(loads)]
    best: list[float] = [0.0, *[inf] * len(loads)]
    for _ in range(stages):
        best = [inf] + [
            min(max(best[i], upto[j] - upto[i]) for i in range(j)) for j in range(1, len(upto))
        ]
    return int(best[-1])


def functions(path: str, *names: str) -> dict[str, Any]:
    """The named functions of a source file, without running the rest of it."""
    tree = ast.parse(Path(path).read_text())
    tree.body = [
        node
        for node in tree.body
        if (isinstance(node, ast.FunctionDef) and (not names or node.name in names))
        or (isinstance(node, ast.ImportFrom) and node.module == "typing")
    ]
    space: dict[str, Any] = {"bisect_left": bisect_left, "sqrt": sqrt}
    exec(compile(tree, path, "exec"), space)
    return space


def torchgpipe(path: str) -> Solver:
    solve = functions(path)["solve"]
    return lambda loads, stages: [len(block) for block in solve(list(loads), stages)]


def deepspeed(path: str) -> Solver:
    names = ("prefix_sum_inc", "partition_uniform", "_lprobe", "_rb_partition_balanced",
             "partition_balanced")  # fmt: skip
    solve = functions(path, *names)["partition_balanced"]
    return lambda loads, stages: [b - a for a, b in pairwise(solve(list(loads), stages))]


def bottleneck(loads: Sequence[int], split: Split) -> int:
    bounds = [0, *accumulate(split)]
    return max(sum(loads[a:b]) for a, b in pairwise(bounds))


def cases() -> dict[str, list[tuple[list[int], int]]]:
    """Layers of a model with a heavy head; layers of random costs."""
    chance = random.Random(0)
    blocks = [chance.randint(9_500, 10_500) for _ in range(31)]
    found = {f"32 layers, head × 8, p={p}": [([*blocks, 80_000], p)] for p in (4, 8, 16)}
    for p in (8, 16):
        found[f"32 random layers, p={p}"] = [
            ([chance.randint(1, 100) for _ in range(32)], p) for _ in range(200)
        ]
    found["130 layers, p=16"] = [([chance.randint(9_000, 11_000) for _ in range(130)], 16)] * 5
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torchgpipe", metavar="blockpartition.py")
    parser.add_argument("--deepspeed", metavar="utils.py")
    paths = parser.parse_args()
    solvers: dict[str, Solver] = {"unbubble": ours}
    if paths.torchgpipe:
        solvers["torchgpipe"] = torchgpipe(paths.torchgpipe)
    if paths.deepspeed:
        solvers["deepspeed"] = deepspeed(paths.deepspeed)
    good = True
    for name, instances in cases().items():
        best = [optimum(loads, stages) for loads, stages in instances]
        for label, solve in solvers.items():
            start = time.perf_counter()
            splits = [solve(loads, stages) for loads, stages in instances]
            taken = 1e3 * (time.perf_counter() - start) / len(instances)
            above = [
                bottleneck(loads, split) / least - 1
                for (loads, _), split, least in zip(instances, splits, best, strict=True)
            ]
            wrong = sum(excess > 0 for excess in above) / len(above)
            empty = sum(0 in split for split in splits)
            print(
                f"{name:<26} {label:<11} above optimum: mean {statistics.mean(above):6.1%} worst "
                f"{max(above):6.1%}, not optimal {wrong:4.0%}, empty stages {empty}, {taken:.2f} ms"
            )
            good &= label != "unbubble" or (wrong == 0 and empty == 0)
    return 0 if good else 3


if __name__ == "__main__":
    sys.exit(main())
