"""The costs file, TOML or JSON: the costs of stages, or of layers that are still to be partitioned.

    unit = "ms"                       # of plain numbers; a time may also carry its own: "1.5ms"

    [[stages]]                        # or [[layers]]
    name = "embedding"
    forward = 2.5                     # or {compute = 2.1, communication = 0.3, overhead = 0.1}
    backward_input = 0.1
    backward_weight = 3.0
    output_bytes = "4MiB"

    [edges]                           # of all pairs of ranks, or by class, or pair by pair
    latency = "20us"
    bandwidth = "25GB/s"

Times in seconds become nanoseconds; times in a unit of the caller's own stay exact. `notes`,
`spread` and `medians` are for people and are not read.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import lcm
from pathlib import Path
from typing import Any, NamedTuple

from unbubble import quantity
from unbubble.costs import (
    CHANNELS,
    MAX_TICKS,
    MAX_TICKS_PER_UNIT,
    TIMES,
    Costs,
    Duration,
    Edge,
    StageCosts,
    Tail,
    ticks_for,
)
from unbubble.document import Value, load, parse
from unbubble.files import write_text

WHAT = "a costs file with rows under stages or layers"
NANOSECONDS = 10**9
PARTS = Duration._fields
ROW_BYTES = ("held_until_input_bytes", "held_until_weight_bytes", "weight_bytes", "output_bytes")
HOST_TIMES = ("send_host", "recv_host", "action_overhead")
TAIL_TIMES = ("reduce", "clip", "optimizer")
PEOPLES = ("notes", "spread", "medians")
ROW_KEYS = (*TIMES, *ROW_BYTES, "name", *PEOPLES)
EDGE = ("latency", "bandwidth")
CLASSES = ("default", "same_box", "across_boxes", "ranks_per_box")
PAIR = re.compile(r"([0-9]{1,7})([->])([0-9]{1,7})")
KEYS = (
    "unit", "ticks_per_unit", "stages", "layers", "edges", "speed", "tail", "overlap", "channel",
    *HOST_TIMES, *PEOPLES,
)  # fmt: skip


def load_costs(path: str | Path) -> Costs:
    """The costs in a file, one row a stage or layer.

    Raises InputError that names the file, the key, the value and the rule.
    """
    return costs_of(load(path, WHAT))


def load_rows(path: str | Path) -> tuple[Costs, bool]:
    """The costs in a file, and whether its rows are layers, to be partitioned."""
    document = load(path, WHAT)
    return costs_of(document), "layers" in document.table()


def parse_costs(text: str, source: str = "costs") -> Costs:
    """The costs in a text; `source` stands for the file in messages."""
    return costs_of(parse(text, source, WHAT))


def costs_of(document: Value) -> Costs:
    """The costs in a document read already (a plan holds one)."""
    keys = document.table(KEYS)
    rows = [key for key in ("stages", "layers") if key in keys]
    if len(rows) != 1:
        have = "holds both" if rows else "holds neither"
        raise document.error(f"a costs file has rows under stages or layers; it {have}")
    values = keys[rows[0]].items()
    if not values:
        raise keys[rows[0]].error("there is no row; one row a stage or layer is needed")
    tables = [row.table(ROW_KEYS[1:], ["forward"]) for row in values]
    for row, table in zip(values, tables, strict=True):
        if "backward" not in table and not {"backward_input", "backward_weight"} <= table.keys():
            raise row.error(
                "no backward time; give backward, or backward_input and backward_weight"
            )
    clock = _clock(keys, tables)
    settings: dict[str, Any] = {key: clock.read(keys[key]) for key in HOST_TIMES if key in keys}
    if "edges" in keys:
        settings["edge"], settings["edges"] = _edges(keys["edges"], clock, len(values))
    if "overlap" in keys:
        settings["overlap"] = keys["overlap"].flag()
    if "channel" in keys:
        settings["channel"] = keys["channel"].text(CHANNELS)
    if "tail" in keys:
        tail = keys["tail"].table((*TAIL_TIMES, "overlap_reduce"))
        parts: dict[str, Any] = {key: clock.read(tail[key]) for key in TAIL_TIMES if key in tail}
        overlapped = "overlap_reduce" in tail and tail["overlap_reduce"].flag()
        settings["tail"] = Tail(**parts, overlap_reduce=overlapped)
    if "speed" in keys:
        settings["speed"] = _speed(keys["speed"])
    costs = Costs(
        stages=tuple(_stage(table, clock) for table in tables),
        unit=clock.unit,
        ticks_per_unit=clock.ticks,
        **settings,
    )
    _check_length(document, costs)
    return costs


def _check_length(document: Value, costs: Costs) -> None:
    """That no time grows beyond 64 bits on a slow rank or a slow edge."""
    times = (getattr(row, key) for row in costs.stages for key in TIMES)
    longest = max(time.total for time in times if time is not None)
    if longest * max(costs.speed.values(), default=1) >= MAX_TICKS:
        raise document.error("speed makes the longest time too long to add up exactly")
    largest = max(row.output_bytes for row in costs.stages)
    if any(e.transfer(largest) >= MAX_TICKS for e in (costs.edge, *costs.edges.values())):
        raise document.error("edges: a transfer takes too long to add up exactly")


class Clock(NamedTuple):
    """How a file's times become ticks and back: plain numbers are multiples of `scale` units."""

    unit: str
    ticks: int
    scale: Fraction

    @classmethod
    def of(cls, costs: Costs) -> "Clock":
        """That of a file we write: milliseconds where the ticks are nanoseconds."""
        in_ms = costs.unit == "s" and costs.ticks_per_unit == NANOSECONDS
        return cls(costs.unit, costs.ticks_per_unit, Fraction(1, 1000 if in_ms else 1))

    def read(self, value: Value) -> int:
        """The ticks of a time in a file."""
        amount, in_seconds = value.time()
        if in_seconds and self.unit != "s":
            raise value.error(
                f"{value.shown} carries a unit and the file's plain numbers have none; give all "
                'times a unit, or name that of the plain ones, as in unit = "ms"'
            )
        ticks = round((amount if in_seconds else amount * self.scale) * self.ticks)
        if ticks >= MAX_TICKS:
            raise value.error(f"{value.shown} is too long to add up exactly; use a coarser unit")
        return ticks

    def written(self, ticks: int) -> float | int | str:
        """The number that `read` turns back into the same ticks."""
        return _exact(Fraction(ticks) / (self.ticks * self.scale))


def _clock(keys: Mapping[str, Value], rows: Sequence[Mapping[str, Value]]) -> Clock:
    named = keys["unit"].text() if "unit" in keys else ""
    given = keys["ticks_per_unit"].integer(1, 10**12) if "ticks_per_unit" in keys else 0
    if named in quantity.SECONDS:
        scale = quantity.SECONDS[named]
        in_a_second = min(given * max(int(1 / scale), 1), MAX_TICKS_PER_UNIT)
        return Clock("s", in_a_second or NANOSECONDS, scale)
    times = list(_times(keys, rows))
    plain = [amount for amount, in_seconds in times if not in_seconds]
    if "unit" not in keys and len(plain) < len(times) and not any(plain):
        return Clock("s", given or NANOSECONDS, Fraction(1))
    return Clock(named, given or _exact_ticks(plain, keys, rows), Fraction(1))


def _exact_ticks(
    plain: list[Fraction], keys: Mapping[str, Value], rows: Sequence[Mapping[str, Value]]
) -> int:
    """Ticks that make the times exact, on slow ranks and of transfers too where they can be; else
    as many as let a million of the longest times add up."""
    ticks = ticks_for(plain)
    factors = _speed(keys["speed"]).values() if "speed" in keys else ()
    edges = _edge_tables(keys["edges"]) if "edges" in keys else {}
    speeds = [_bandwidth(edge["bandwidth"], "") for edge in edges.values() if "bandwidth" in edge]
    sizes = {row["output_bytes"].size() for row in rows if "output_bytes" in row}
    transfers = [size / speed for size in sizes for speed in speeds]
    longest = max(1, *transfers, max(plain, default=0) * max(factors, default=1))
    most = int(MAX_TICKS_PER_UNIT / longest)
    slowed = ticks * lcm(*(factor.denominator for factor in factors))
    exact = lcm(slowed, *(transfer.denominator for transfer in transfers))
    if exact <= most:
        return exact
    ticks = slowed if slowed <= most else ticks
    while 10 * ticks <= most:
        ticks *= 10
    return ticks


def _times(
    keys: Mapping[str, Value], rows: Sequence[Mapping[str, Value]]
) -> Iterable[tuple[Fraction, bool]]:
    """Every time in the file in its own unit, and whether it carries one."""
    found = [row[key] for row in rows for key in TIMES if key in row]
    found += [keys[key] for key in HOST_TIMES if key in keys]
    if "tail" in keys:
        tail = keys["tail"].table((*TAIL_TIMES, "overlap_reduce"))
        found += [tail[key] for key in TAIL_TIMES if key in tail]
    if "edges" in keys:
        tables = _edge_tables(keys["edges"]).values()
        found += [edge["latency"] for edge in tables if "latency" in edge]
    for value in found:
        parts = value.table(PARTS).values() if isinstance(value.raw, dict) else (value,)
        yield from (part.time() for part in parts)


def _stage(row: Mapping[str, Value], clock: Clock) -> StageCosts:
    fields: dict[str, Any] = {key: _duration(row[key], clock) for key in TIMES if key in row}
    fields |= {key: row[key].size() for key in ROW_BYTES if key in row}
    for key in ROW_BYTES:
        if fields.get(key, 0) >= MAX_TICKS:
            raise row[key].error(f"{row[key].shown} is more bytes than any machine holds")
    return StageCosts(name=row["name"].text() if "name" in row else "", **fields)


def _duration(value: Value, clock: Clock) -> Duration:
    if not isinstance(value.raw, dict):
        return Duration(clock.read(value))
    return Duration(**{key: clock.read(part) for key, part in value.table(PARTS).items()})


def _edge_tables(value: Value) -> dict[str, dict[str, Value]]:
    """The tables of latency and bandwidth by class or pair; "" holds for every pair."""
    keys = value.table()
    if "latency" in keys or "bandwidth" in keys:
        return {"": value.table(EDGE)}
    for key in keys:
        if key not in CLASSES and not PAIR.fullmatch(key):
            raise value.error(
                f"{key[:40]!r} is neither latency, bandwidth, a class ({', '.join(CLASSES)}) nor a "
                'pair of ranks ("0-1" both ways, "0>1" one way)'
            )
    return {key: table.table(EDGE) for key, table in keys.items() if key != "ranks_per_box"}


def _edges(value: Value, clock: Clock, rows: int) -> tuple[Edge, dict[tuple[int, int], Edge]]:
    """The edge of every pair, and those of the pairs that differ."""
    made = {key: _edge(edge, clock) for key, edge in _edge_tables(value).items()}
    every = made.get("") or made.get("default") or Edge()
    base, inside = made.get("across_boxes", every), made.get("same_box", every)
    edges: dict[tuple[int, int], Edge] = {}
    if boxed := next((key for key in ("same_box", "across_boxes") if key in made), None):
        keys = value.table()
        if "ranks_per_box" not in keys:
            raise value.error(f"{boxed} needs ranks_per_box, the number of ranks in one box")
        box = keys["ranks_per_box"].integer(1, 1 << 20)
        for source in range(rows):
            first = source // box * box
            for destination in range(first, min(first + box, rows)):
                if source != destination:
                    edges[source, destination] = inside
    for key, edge in made.items():
        if match := PAIR.fullmatch(key):
            source, destination = int(match[1]), int(match[3])
            edges[source, destination] = edge
            if match[2] == "-":
                edges[destination, source] = edge
    return base, edges


def _edge(table: Mapping[str, Value], clock: Clock) -> Edge:
    bandwidth = _bandwidth(table["bandwidth"], clock.unit) if "bandwidth" in table else None
    return Edge(
        latency=clock.read(table["latency"]) if "latency" in table else 0,
        ticks_per_byte=Fraction(0) if bandwidth is None else clock.ticks / bandwidth,
    )


def _bandwidth(value: Value, unit: str) -> Fraction:
    """Bytes per second, or per unit where that is the caller's own."""
    if isinstance(value.raw, str) and value.raw.strip()[-2:] == "/s":
        if unit != "s":
            raise value.error(f"{value.shown} is per second and the times have a unit of their own")
        return value.read(lambda raw, what: quantity.rate(raw, "B", what))
    amount = value.number()
    if amount <= 0:
        raise value.error(f"{value.shown} must be above 0; leave it out where bytes cost nothing")
    return amount


def _speed(value: Value) -> dict[int, Fraction]:
    """Factors of all times by rank: a list, or a table with the ranks that differ."""
    if isinstance(value.raw, list):
        factors = dict(enumerate(value.items()))
    else:
        factors = {}
        for key, factor in value.table().items():
            if not (key.isascii() and key.isdigit() and len(key) < 8):
                raise value.error(f"{key[:40]!r} is not a rank; ranks are numbers from 0")
            factors[int(key)] = factor
    for factor in factors.values():
        if not 0 < factor.number() <= 10**6:
            raise factor.error(f"{factor.shown} must be above 0 (1: as given; 2: twice as slow)")
    return {rank: factor.number() for rank, factor in factors.items()}


def dump_costs(
    path: str | Path,
    costs: Costs,
    *,
    rows: str = "stages",
    notes: Mapping[str, Any] | None = None,
    row_notes: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write a JSON costs file that `load_costs` reads back equal.

    `rows` is "stages" or "layers". `notes` stand at the top; `row_notes[i]`, in row i, may hold
    `spread`, `medians` and `notes`.
    """
    write_text(path, format_costs(costs, rows=rows, notes=notes, row_notes=row_notes))


def format_costs(
    costs: Costs,
    *,
    rows: str = "stages",
    notes: Mapping[str, Any] | None = None,
    row_notes: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The text of a costs file; see `dump_costs`."""
    import json

    document = costs_document(costs, rows=rows)
    for row, extra in zip(document[rows], row_notes, strict=False):
        row |= extra
    return (
        json.dumps(document | ({"notes": notes} if notes else {}), indent=1, allow_nan=False) + "\n"
    )


def costs_document(costs: Costs, *, rows: str = "stages") -> dict[str, Any]:
    """The costs as plain data, the inverse of `costs_of`; what is at its default is left out."""
    clock = Clock.of(costs)
    time = clock.written

    def duration(parts: Duration) -> Any:
        if parts.communication == parts.overhead == 0:
            return time(parts.compute)
        return dict(zip(PARTS, map(time, parts), strict=True))

    def stage(row: StageCosts) -> dict[str, Any]:
        times = {key: getattr(row, key) for key in TIMES}
        sizes = {key: getattr(row, key) for key in ROW_BYTES}
        return (
            ({"name": row.name} if row.name else {})
            | {
                key: duration(value)
                for key, value in times.items()
                if value is not None and (value.total or not key.startswith("recompute"))
            }
            | {key: value for key, value in sizes.items() if value}
        )

    def edge(value: Edge) -> dict[str, Any]:
        made: dict[str, Any] = {"latency": time(value.latency)}
        if value.ticks_per_byte:
            made["bandwidth"] = _exact(costs.ticks_per_unit / value.ticks_per_byte)
        return made

    document: dict[str, Any] = {"unit": "ms" if clock.scale != 1 else costs.unit}
    if clock.scale == 1:
        document["ticks_per_unit"] = costs.ticks_per_unit
    document |= {key: time(getattr(costs, key)) for key in HOST_TIMES if getattr(costs, key)}
    if costs.edge != Edge() or costs.edges:
        document["edges"] = {"default": edge(costs.edge)} | {
            f"{source}>{destination}": edge(value)
            for (source, destination), value in costs.edges.items()
        }
    if not costs.overlap:
        document["overlap"] = False
    if costs.channel != "unlimited":
        document["channel"] = costs.channel
    if costs.tail != Tail():
        document["tail"] = {key: time(getattr(costs.tail, key)) for key in TAIL_TIMES}
        document["tail"]["overlap_reduce"] = costs.tail.overlap_reduce
    if costs.speed:
        document["speed"] = {str(rank): _exact(factor) for rank, factor in costs.speed.items()}
    document[rows] = [stage(row) for row in costs.stages]
    return document


def _exact(value: Fraction) -> float | int | str:
    """A number that reads back equal: an integer, a float of that shortest text, or a/b."""
    if value.denominator == 1:
        return int(value) if abs(value) < 1 << 62 else f"{value.numerator}/1"
    nearest = float(value)
    return nearest if Fraction(str(nearest)) == value else f"{value.numerator}/{value.denominator}"
