"""Reading the traces of many ranks at once: how it scales with the cores.

    python benchmarks/trace_scaling.py [--ranks 64] [--kernels 320] [--jobs N] [--dask] [--rounds 3]

Makes the profiler's files of a pipeline on devices (1F1B, two microbatches a rank) in a temporary
folder, each action so many kernels, and reads them whole with one process and with as many as there
are cores; the answers must be equal. Beside that an anchor: so many processes that each read their
share of the files and know nothing of each other, which is what the machine has to give. Every
measurement is a process of its own; the fastest of several rounds, taken in turn, counts. `--dask`
adds a local cluster of Dask (`unbubble[distributed]`). Prints seconds, ratios, how many cores other
programs kept busy meanwhile, and the memory and processor time of the main process, which is what
does not scale.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.trace.cuda_traces import write_cuda  # noqa: E402

from unbubble.costs import Costs  # noqa: E402
from unbubble.families import generate  # noqa: E402
from unbubble.simulate import simulate  # noqa: E402

READ = """
import json, resource, sys, time
from contextlib import nullcontext
from hashlib import sha256
from peak import peak_mb

def main(folder, how, jobs):
    from unbubble.trace import read
    from unbubble.trace.findings import findings
    with executor(how, int(jobs)) as pool:
        begin = time.perf_counter()
        answer = findings(read([folder], executor=pool))
        took = time.perf_counter() - begin
    own = resource.getrusage(resource.RUSAGE_SELF)
    memory, used = peak_mb(), own.ru_utime + own.ru_stime
    text = json.dumps(answer, sort_keys=True).encode()
    print(json.dumps([took, memory, used, sha256(text).hexdigest(), len(answer["ranks"])]))

def executor(how, jobs):
    if how == "pool":
        from concurrent.futures import ProcessPoolExecutor
        return ProcessPoolExecutor(jobs)
    if how == "dask":
        from distributed import Client, LocalCluster
        client = Client(LocalCluster(
            n_workers=jobs, threads_per_worker=1, processes=True, host="127.0.0.1",
            dashboard_address="127.0.0.1:0"))
        return client.get_executor()
    return nullcontext()

if __name__ == "__main__":
    main(*sys.argv[1:])
"""
SHARE = """
import sys
from unbubble.trace.kineto import read
for source in sys.argv[1:]:
    read(source)
"""


class Taken(NamedTuple):
    """Of one reading: seconds on the wall, cores that others kept busy meanwhile, and the peak
    memory and processor seconds of the main process alone."""

    seconds: float
    others: float
    memory: float
    used: float


class Watch:
    """The time that passes, and how many cores others keep busy meanwhile (where /proc tells)."""

    def __init__(self) -> None:
        self.begin, self.busy = time.perf_counter(), self._busy_s()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begin

    @property
    def others(self) -> float:
        return max((self._busy_s() - self.busy) / self.seconds, 0.0)

    @staticmethod
    def _busy_s() -> float:
        """Processor time of everybody but this process and the children that have ended."""
        try:
            user, nice, system, _, _, irq, soft, *_ = map(
                int, Path("/proc/stat").read_text().split()[1:9]
            )
        except OSError:
            return 0.0
        total = (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")
        own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return total - sum(one.ru_utime + one.ru_stime for one in own)


def write(folder: Path, ranks: int, kernels: int, rank: int) -> None:
    """One rank's file."""
    order = generate("1f1b", ranks, 2 * ranks)
    costs = Costs.uniform(order.placement, forward=9_000_000, backward=18_000_000, p2p=400_000)
    write_cuda(folder, simulate(order, costs), ranks=[rank], kernels=kernels, indent=None)


def started(*command: str) -> "subprocess.Popen[str]":
    places = f"{ROOT / 'src'}:{ROOT / 'benchmarks'}"
    environment = {**os.environ, "PYTHONPATH": places}
    return subprocess.Popen(
        [sys.executable, *command], env=environment, stdout=subprocess.PIPE, text=True
    )


def whole(script: Path, folder: Path, how: str, jobs: int) -> tuple[Taken, Any]:
    """What the main process took (s, peak MB, processor s), and what stands for the answer."""
    watch = Watch()
    process = started(str(script), str(folder), how, str(jobs))
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"reading with {how} ended with status {process.returncode}")
    seconds, memory, used, *answer = json.loads(out)
    return Taken(seconds, watch.others, memory, used), answer


def apart(files: list[Path], jobs: int) -> tuple[float, float]:
    """The same of so many processes that each read their share of the files."""
    watch = Watch()
    processes = [started("-c", SHARE, *map(str, files[i::jobs])) for i in range(jobs)]
    ended = [process.wait() for process in processes]
    if any(ended):
        raise SystemExit("a process that reads its share failed")
    return watch.seconds, watch.others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--kernels", type=int, default=320, help="of every action")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dask", action="store_true")
    options = parser.parse_args()
    jobs = options.jobs
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "traces"
        folder.mkdir()
        with ProcessPoolExecutor(jobs) as pool:
            make = partial(write, folder, options.ranks, options.kernels)
            list(pool.map(make, range(options.ranks)))
        files = sorted(folder.iterdir())
        size = sum(path.stat().st_size for path in files)
        print(f"{len(files)} ranks, {size / 1e6:.0f} MB, {jobs} processes on "
              f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")  # fmt: skip
        script = Path(place) / "reading.py"
        script.write_text(READ)
        ways = {"one process": ("one", 1), f"a pool of {jobs}": ("pool", jobs)}
        if options.dask:
            ways[f"Dask's cluster of {jobs}"] = ("dask", jobs)
        best: dict[str, Taken] = {}
        shares: dict[int, tuple[float, float]] = {}
        answers = set()
        for _ in range(options.rounds):
            for name, way in ways.items():
                taken, answer = whole(script, folder, *way)
                best[name] = min(best.get(name, taken), taken)
                answers.add(str(answer))
            for count in (1, jobs):
                found = apart(files, count)
                shares[count] = min(found, shares.get(count, found))
        alone = best["one process"].seconds
        for name, (seconds, others, memory, used) in best.items():
            print(f"{name:<24} {seconds:6.2f} s  × {alone / seconds:.2f}  others {others:.1f}  "
                  f"main process: {memory:.0f} MB, {used:.2f} s of processor time")  # fmt: skip
        (one, _), (many, others) = shares[1], shares[jobs]
        print(f"{f'{jobs} that know no other':<24} {many:6.2f} s  × {one / many:.2f}  others "
              f"{others:.1f}  ({one:.2f} s with one)")  # fmt: skip
        if len(answers) > 1:
            raise SystemExit("the answers differ")
        print("the answers are equal")


if __name__ == "__main__":
    main()
