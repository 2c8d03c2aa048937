"""Recording: measured (or simulated) steps of one schedule, saved as JSON; our own trace format.

    {"unbubble_recording": 1, "unit": "s", "ticks_per_unit": 1000000000, "measured": true,
     "schedule": {"name": "1f1b", "rank_of": [0, 1], "rows": ["0F0,0B0", "1F0,1B0"]},
     "steps": [{"begin": 0, "finish": 90, "starts": [[0, 60], [30, 45]], "ends": [[20, 80], …],
                "transfers": [["0SEND_F0", 0, 1, 20, 30]]}]}

Times are ticks; `ends[r][i]` belongs to the i-th action of rank r (an overlapped pair counts as
one). The schedule is written as in a plan file (`unbubble.schedule.document`). `communication`,
`overhead`, `recompute` and `transfers` are absent where nothing was recorded. Measured steps
keep what they leave open: `clock_uncertainty_ns` (0 where absent, null where nothing
bounds the clocks), `recovered` and `unknown`.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from unbubble.action import JOINED, SENDS, parse
from unbubble.document import Value, refuse_repeated
from unbubble.errors import InputError
from unbubble.files import read_text, write_text
from unbubble.schedule import Schedule
from unbubble.schedule.document import schedule_document, schedule_of
from unbubble.simulate import Timeline, Transfer

WHAT = "a recording of unbubble"
MAX_TICKS = 1 << 61

Rows = list[list[int]]


class SavedStep(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One step; times in ticks."""

    begin: int
    finish: int
    starts: Rows
    ends: Rows
    communication: Rows | None = None
    overhead: Rows | None = None
    recompute: Rows | None = None
    transfers: list[tuple[str, int, int, int, int]] = []


class Saved(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The whole file."""

    unbubble_recording: Literal[1]
    ticks_per_unit: int
    schedule: dict[str, Any]
    steps: list[SavedStep]
    unit: str = ""
    measured: bool = False
    clock_uncertainty_ns: int | None = 0
    recovered: list[str] = []
    unknown: list[str] = []


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The steps of a file, and what they leave open."""

    steps: list[Timeline]
    clock_uncertainty_ns: int | None = 0
    recovered: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def dump_recording(
    path: str | Path,
    steps: Sequence[Timeline],
    *,
    clock_uncertainty_ns: int | None = 0,
    recovered: Sequence[str] = (),
    unknown: Sequence[str] = (),
) -> None:
    """Save the steps of one schedule, all of the file or nothing."""
    file = msgspec.structs.replace(
        saved(steps),
        clock_uncertainty_ns=clock_uncertainty_ns,
        recovered=list(recovered),
        unknown=list(unknown),
    )
    write_text(path, msgspec.json.encode(file).decode() + "\n")


def load_recording(path: str | Path) -> Recording:
    """What is in a file.

    Raises InputError that names the file and what is wrong in it.
    """
    return parse_recording(read_text(path, WHAT), str(path))


def parse_recording(text: str | bytes, source: str = "recording") -> Recording:
    """What is in a text; `source` stands for the file in messages."""
    try:
        file = msgspec.json.decode(text, type=Saved)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{source}: not {WHAT}: {error}") from None
    refuse_repeated(text, source)
    if not 1 <= file.ticks_per_unit <= 10**12:
        raise InputError(f"{source}: ticks_per_unit {file.ticks_per_unit} is not in 1 … 10^12")
    if not 0 <= (file.clock_uncertainty_ns or 0) <= MAX_TICKS:
        raise InputError(f"{source}: clock_uncertainty_ns {file.clock_uncertainty_ns} is no time")
    schedule = schedule_of(Value(file.schedule, f"{source}: schedule"))
    try:
        steps = [_timeline(step, schedule, file) for step in file.steps]
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    return Recording(
        steps=steps,
        clock_uncertainty_ns=file.clock_uncertainty_ns,
        recovered=tuple(file.recovered),
        unknown=tuple(file.unknown),
    )


def saved(steps: Sequence[Timeline]) -> Saved:
    """The file's content. All steps must have the same schedule."""
    if not steps:
        raise InputError("a recording holds at least one step")
    first = steps[0]
    schedule = first.schedule
    if any(step.schedule != schedule for step in steps):
        raise InputError("a recording holds steps of one schedule; save the others apart")
    return Saved(
        unbubble_recording=1,
        unit=first.unit,
        ticks_per_unit=first.ticks_per_unit,
        measured=first.measured,
        schedule=schedule_document(schedule),
        steps=[_step(step) for step in steps],
    )


def _step(step: Timeline) -> SavedStep:
    keep = [[not code & JOINED for code in row] for row in step.schedule.codes]

    def rows(columns: tuple["array[int]", ...] | None) -> Rows | None:
        if columns is None:
            return None
        return [
            [value for value, kept in zip(*both, strict=True) if kept]
            for both in zip(columns, keep, strict=True)
        ]

    return SavedStep(
        begin=step.begin,
        finish=step.finish,
        starts=rows(step.starts) or [],
        ends=rows(step.ends) or [],
        communication=rows(step.communication),
        overhead=rows(step.overhead),
        recompute=rows(step.recompute),
        transfers=[
            (str(t.action), t.source, t.destination, t.start, t.end) for t in step.transfers
        ],
    )


def _timeline(step: SavedStep, schedule: Schedule, file: Saved) -> Timeline:
    joined = [[bool(code & JOINED) for code in row] for row in schedule.codes]

    def columns(rows: Rows, what: str, *, parts: bool = False) -> tuple["array[int]", ...]:
        if len(rows) != schedule.ranks:
            raise InputError(f"{what} has {len(rows)} rows for {schedule.ranks} ranks")
        found = []
        for rank, (row, pairs) in enumerate(zip(rows, joined, strict=True)):
            actions = len(pairs) - sum(pairs)
            if len(row) != actions:
                raise InputError(
                    f"{what}, rank {rank}: {len(row)} times for {actions} actions of the order"
                )
            if any(abs(value) > MAX_TICKS for value in row):
                raise InputError(f"{what}, rank {rank}: a time is beyond 2^61 ticks")
            values = iter(row)
            column, before = array("q"), False
            for pair in pairs:
                if pair:
                    value = next(values)
                    column.append(0 if parts else value)
                    before = True
                else:
                    column.append(value if before else next(values))
                    before = False
            found.append(column)
        return tuple(found)

    def part(rows: Rows | None, what: str) -> tuple["array[int]", ...] | None:
        return None if rows is None else columns(rows, what, parts=True)

    starts, ends = columns(step.starts, "starts"), columns(step.ends, "ends")
    for rank, (begins, finishes) in enumerate(zip(starts, ends, strict=True)):
        if any(end < start for start, end in zip(begins, finishes, strict=True)):
            raise InputError(f"rank {rank}: an action ends before it starts")
    if not -MAX_TICKS <= step.begin <= step.finish <= MAX_TICKS:
        raise InputError(f"the step begins at {step.begin} and finishes at {step.finish}")
    transfers = []
    for text, source, destination, start, end in step.transfers:
        if max(abs(start), abs(end)) > MAX_TICKS or end < start:
            raise InputError(f"transfer {text}: its times {start} and {end} are no interval")
        if not (0 <= source < schedule.ranks and 0 <= destination < schedule.ranks):
            raise InputError(
                f"transfer {text}: ranks {source} and {destination} are not in 0 … p−1"
            )
        action = parse(text)
        if action.kind not in SENDS:
            raise InputError(f"transfer {text}: it is named by its send, as 0SEND_F0")
        transfers.append(Transfer(action, source, destination, start, end))
    return Timeline(
        schedule=schedule,
        starts=starts,
        ends=ends,
        begin=step.begin,
        finish=step.finish,
        communication=part(step.communication, "communication"),
        overhead=part(step.overhead, "overhead"),
        recompute=part(step.recompute, "recompute"),
        transfers=tuple(transfers),
        unit=file.unit,
        ticks_per_unit=file.ticks_per_unit,
        measured=file.measured,
    )
