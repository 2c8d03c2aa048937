"""Ways to damage a folder of traces, each from a seed, and what may be said of the result."""

import gzip
import json
import os
import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path

ODD_VALUES = [None, "x", "", [], {}, True, -1, 1e18, -1e18, 2**70, "NaN", [1, 2], {"a": 1}]
CONTROLS = ["\x00", "\x01", "\x1b[31m", "\x7f", "\u202e", "\ufffe"]


def texts(folder):
    return [p for p in sorted(folder.iterdir()) if p.name.endswith((".json", ".json.gz"))
            and "truth" not in p.name]  # fmt: skip


def load(path):
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def store(path, data):
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)


def edit(path, change):
    """Applies `change` to the file's JSON."""
    content = json.loads(load(path))
    store(path, json.dumps(change(content) or content).encode())


def events_of(content):
    whole = isinstance(content, dict) and "traceEvents" in content
    return content["traceEvents"] if whole else content


def records(content):
    """The tables of a JSON trace, whatever its kind."""
    found = events_of(content)
    return found if isinstance(found, list) else list(found.values())


# each takes a folder and a random.Random and damages the folder; returns a word about it


def truncated(folder, rng):
    path = rng.choice(texts(folder))
    data = load(path)
    store(path, data[: rng.randrange(len(data))])


def truncated_raw(folder, rng):
    path = rng.choice(sorted(folder.iterdir()))
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def flipped_bytes(folder, rng):
    path = rng.choice(texts(folder))
    data = bytearray(load(path))
    for _ in range(rng.randint(1, 5)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    store(path, bytes(data))


def flipped_raw(folder, rng):
    path = rng.choice(sorted(folder.iterdir()))
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 10, 1000])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data)


def control_characters(folder, rng):
    path = rng.choice(texts(folder))
    text = load(path).decode()
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(CONTROLS) + text[at:]
    store(path, text.encode())


def missing_keys(folder, rng):
    def change(content):
        rows = records(content)
        for _ in range(rng.choice([1, 1, 5, 50])):
            row = rng.choice(rows)
            if isinstance(row, dict) and row:
                del row[rng.choice(list(row))]

    edit(rng.choice(texts(folder)), change)


def missing_head(folder, rng):
    def change(content):
        if isinstance(content, dict):
            keys = [k for k in content if k != "traceEvents" or rng.random() < 0.1]
            if keys:
                del content[rng.choice(keys)]

    edit(rng.choice(texts(folder)), change)


def wrong_types(folder, rng):
    def change(content):
        rows = records(content)
        for _ in range(rng.choice([1, 1, 3])):
            row = rng.choice(rows)
            if isinstance(row, dict) and row:
                row[rng.choice(list(row))] = rng.choice(ODD_VALUES)

    edit(rng.choice(texts(folder)), change)


def wrong_head(folder, rng):
    def change(content):
        if not isinstance(content, dict):
            return rng.choice(ODD_VALUES)
        content[rng.choice(list(content))] = rng.choice(ODD_VALUES)
        return content

    edit(rng.choice(texts(folder)), change)


def dropped_events(folder, rng):
    def change(content):
        rows = events_of(content)
        if isinstance(rows, list):
            for _ in range(rng.choice([1, 3, 30])):
                if rows:
                    del rows[rng.randrange(len(rows))]

    edit(rng.choice(texts(folder)), change)


def doubled_events(folder, rng):
    def change(content):
        rows = events_of(content)
        if isinstance(rows, list):
            rows += [rng.choice(rows) for _ in range(rng.choice([1, 3, 30]))]

    edit(rng.choice(texts(folder)), change)


def shuffled_events(folder, rng):
    def change(content):
        rows = events_of(content)
        if isinstance(rows, list):
            rng.shuffle(rows)

    edit(rng.choice(texts(folder)), change)


def one_rank_missing(folder, rng):
    rng.choice(texts(folder)).unlink()


def clock_apart(folder, rng):
    """By more than anything takes: on one machine, whose clock is one, nothing tells of less."""
    apart = rng.choice([-1, 1]) * rng.choice([10**9, 7 * 10**9, 10**13])

    def change(content):
        if "baseTimeNanoseconds" in content:
            content["baseTimeNanoseconds"] += apart

    edit(rng.choice(texts(folder)), change)


def empty_file(folder, rng):
    rng.choice(texts(folder)).write_bytes(b"")


def other_json(folder, rng):
    (folder / "other.json").write_text(
        rng.choice(['{"lr": 0.1}', "[]", "{}", "null", '{"traceEvents": []}', '{"traceEvents": 3}',
                    '{"traceEvents": null}', "[[[[", '{"a": ' * 3000, '"text"', "17", "\ufeff{}",
                    '{"unbubble_recording": 1}', '[{"pp_rank": 0}]', '{"1": {"fwd_start": 3}}'])
    )  # fmt: skip


OTHERS = {
    "settings.json": '{"lr": 1, "log": "FILLER"}',
    "log.json": '[{"pp_rank": 0, "log": "FILLER"}]',
    "spans.json": '{"log": "FILLER", "traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2}]}',
    "page.html": "<html>FILLER",
}


def other_file(folder, rng):
    """What lies beside traces, of the sizes that it has."""
    name = rng.choice([*OTHERS, "runs.db"])
    if name in OTHERS:
        size = rng.choice([0, 1000, 300_000])
        (folder / name).write_text(OTHERS[name].replace("FILLER", "x" * size))
    else:
        with closing(sqlite3.connect(folder / name)) as database, database:
            database.execute("CREATE TABLE metrics (step, loss)")


def random_bytes(folder, rng):
    (folder / "other.json").write_bytes(rng.randbytes(rng.choice([1, 100, 10_000])))


def a_file_twice(folder, rng):
    path = rng.choice(texts(folder))
    (folder / f"copy_{path.name}").write_bytes(path.read_bytes())


def utf16(folder, rng):
    path = rng.choice(texts(folder))
    store(path, load(path).decode().encode("utf-16"))


def odd_names(folder, rng):
    path = rng.choice(texts(folder))
    word = rng.choice(["PP:0F0", "PP:99F0", "Forward 0", "ProfilerStep#1", "PP:0F99999999999",
                       "PP:(0F0;1B0)OVERLAP_F_B", "gloo:recv", "x" * 10_000])  # fmt: skip

    def change(content):
        for _ in range(rng.choice([1, 3])):
            row = rng.choice(records(content))
            if isinstance(row, dict):
                row["name"] = word

    edit(path, change)


def later_event(folder, rng):
    """One event a second later."""

    def change(content):
        rows = [r for r in records(content) if isinstance(r, dict) and "ts" in r]
        if rows:
            rng.choice(rows)["ts"] += 1e6

    edit(rng.choice(texts(folder)), change)


RAW_WAYS = [truncated_raw, flipped_raw, random_bytes]
"""For binary formats, whose figures may change without a sign."""
HARMLESS = [other_file]
"""These leave the traces whole, so they must be read."""
WAYS = [
    flipped_raw,
    truncated, truncated_raw, flipped_bytes, control_characters, missing_keys, missing_head,
    wrong_types, wrong_head, dropped_events, doubled_events, shuffled_events, one_rank_missing,
    clock_apart, empty_file, other_json, other_file, random_bytes, a_file_twice, utf16, odd_names,
    later_event,
]  # fmt: skip


def copied(source: Path, target: Path) -> Path:
    """A folder's traces, copied without their truth."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()) if source.is_dir() else [source]:
        if re.search(r"^(?!truth).*\.(json|json\.gz|parquet|sqlite)$", path.name):
            (target / path.name).write_bytes(path.read_bytes())
            os.chmod(target / path.name, 0o644)
    return target


CLASSES = ("compute_s", "bubble_s", "imbalance_static_s", "imbalance_jitter_s", "communication_s",
           "overhead_s")  # fmt: skip


def fault_in(status, out, err, good=None, *, harmless=False) -> str:
    """Why an answer about damaged traces is not acceptable; empty if it is.

    A refusal is one message. An answer adds up, and either says that something is missing or has
    the classes of the undamaged traces, if `good` has these. What is `harmless` is not refused, and
    is told.
    """
    if status == 2 and harmless:
        return f"refused for what lies beside it: {err[:300]!r}"
    if status == 2:
        one_line = err.startswith("unbubble: ") and err.strip().count("\n") == 0
        return "" if one_line and not out else f"refused in a bad way: {err[:300]!r} {out[:100]!r}"
    if status != 0 or err:
        return f"status {status}: {err[:300]!r}"
    answer = json.loads(out)
    for row in answer["ranks"]:
        if row["bubble_s"] is None:
            parts = [row["compute_s"], row["communication_s"], row["idle_s"]]
        else:
            parts = [row[c] for c in CLASSES]
        if abs(sum(parts) - row["total_s"]) > 1e-9 + 1e-9 * abs(row["total_s"]):
            return f"the classes of rank {row['rank']} do not add up"
    if good is None:
        return ""
    if harmless and len(answer["ignored"]) == len(good["ignored"]):
        return "a file was left out in silence"
    if answer["fractions"] is None or answer["unknown"]:
        return "" if answer["unknown"] else "nothing is told and no reason given"
    if answer["step"] != good["step"] or len(answer["ranks"]) != len(good["ranks"]):
        told = answer["step"] in good["steps"] or answer["recovered"] != good["recovered"]
        return "" if told else "another step, in silence"
    slack = 2 * (answer["clock_uncertainty_s"] or 0)
    for row, right in zip(answer["ranks"], good["ranks"], strict=True):
        for name in CLASSES:
            if abs(row[name] - right[name]) > 0.02 * right["total_s"] + slack:
                return f"{name} of rank {row['rank']} is {row[name]}, was {right[name]}, in silence"
    return ""


def seeded(seed: int) -> random.Random:
    return random.Random(seed)
