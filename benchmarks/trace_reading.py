"""Reading a trace of 864,254 events: attributed whole, beside what parsing it alone costs.

    python benchmarks/trace_reading.py [--events 864254] [--rivals PYTHON]

A sample of the shared folder (24,656 events of a B200) is repeated to that size, 217 MB.
Every measurement is a process of its own: seconds of processor time and peak memory. Anchors: a
typed parse into memory by msgspec (the floor), Python's json, and, where they are installed,
HolisticTraceAnalysis (its 0.5.0 needs pandas < 3) and AMD's TraceLens (from its repository: PyPI's
package of that name is another). Many ranks at once are in `trace_scaling.py`.
"""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from data import shared

ROOT = Path(__file__).resolve().parents[1]

SAMPLE = "traces/tracelens/b200_eager_trace.json.gz"

CODE = {
    "unbubble trace": (
        "from unbubble.trace import read; from unbubble.trace.findings import findings\n"
        "findings(read([path]))"
    ),
    "msgspec, typed parse": (
        "import msgspec\n"
        "class Event(msgspec.Struct, gc=False):\n"
        "    ph: str = ''; cat: str = ''; name: str = ''; ts: float = 0; dur: float = 0\n"
        "    tid: int | str = 0\n"
        "class Trace(msgspec.Struct):\n"
        "    traceEvents: list[Event]\n"
        "msgspec.json.decode(open(path, 'rb').read(), type=Trace)"
    ),
    "json": "import json; json.load(open(path))",
    "HolisticTraceAnalysis": (
        "from hta.trace_analysis import TraceAnalysis\nTraceAnalysis(trace_files={0: path})"
    ),
    "TraceLens": (
        "from TraceLens import TreePerfAnalyzer\nTreePerfAnalyzer.from_file(profile_filepath=path)"
    ),
}
RIVALS = ("HolisticTraceAnalysis", "TraceLens")
MEASURE = """
import sys, time
from peak import peak_mb
path = sys.argv[1]
begin = time.process_time()
{code}
print(time.process_time() - begin, peak_mb())
"""


def tile(path: Path, events: int) -> float:
    """Writes the repeated sample; returns its size in MB."""
    content = json.loads(gzip.decompress(shared(SAMPLE).read_bytes()))
    rows = content.pop("traceEvents")
    content.pop("distributedInfo")  # the rank is that of the file's name
    timed = [row for row in rows if row.get("ph") == "X"]
    first = min(row["ts"] for row in timed)
    span = max(row["ts"] + row["dur"] for row in timed) - first
    with open(path, "w") as file:
        file.write(json.dumps(content)[:-1] + ', "traceEvents": [\n')
        for i in range(events):
            row = dict(rows[i % len(rows)])
            if "ts" in row:
                row["ts"] = round(row["ts"] + i // len(rows) * span, 3)
            text = json.dumps(row, separators=(",", ":"))
            file.write(text if i == 0 else ",\n" + text)
        file.write("\n]}\n")
    return path.stat().st_size / 1e6


def measured(python: str, code: str, path: Path) -> tuple[float, float] | None:
    """Processor seconds and peak MB of a process; None where it failed, after saying why."""
    command = [python, "-c", MEASURE.format(code=code), str(path)]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'benchmarks'}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        print((done.stderr.strip().splitlines() or ["no message"])[-1], file=sys.stderr)
        return None
    seconds, memory = done.stdout.split()[-2:]
    return float(seconds), float(memory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=864_254)
    parser.add_argument("--rivals", default=sys.executable, metavar="PYTHON",
                        help="the interpreter that has the other tools")  # fmt: skip
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rank0.json"
        size = tile(path, options.events)
        print(f"{options.events} events, {size:.0f} MB")
        floor = None
        for name, code in CODE.items():
            python = options.rivals if name in RIVALS else sys.executable
            found = measured(python, code, path)
            if found is None:
                print(f"{name:<24} not installed, or it failed")
                continue
            if name.startswith("msgspec"):
                floor = found[0]
            print(f"{name:<24} {found[0]:6.2f} s {found[1]:7.0f} MB")
        ours = measured(sys.executable, CODE["unbubble trace"], path)
        if ours and floor:
            print(f"unbubble / msgspec's typed parse: {ours[0] / floor:.2f}")


if __name__ == "__main__":
    main()
