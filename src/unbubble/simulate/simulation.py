"""Simulate a schedule exactly: the one way from an order and its costs to a Timeline.

>>> from unbubble.schedule import Schedule
>>> from unbubble.costs import Costs
>>> order = Schedule.of([["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]])
>>> simulate(order, Costs.uniform(order.placement, backward=2)).makespan
9

    rank 0  0 1 . a a . b b .        0, 1 forwards; a, b backwards of microbatches 0, 1
    rank 1  . 0 a a 1 b b . .
"""

from array import array
from collections.abc import Sequence

from unbubble.action import JOINED, KIND_MASK, Action, Kind, unpack
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.schedule.order import Schedule
from unbubble.simulate.program import Program, time_tables
from unbubble.simulate.timeline import Timeline, Transfer


def simulate(
    schedule: Schedule,
    costs: Costs,
    *,
    durations: Sequence["array[int]"] | None = None,
    lags: Sequence["array[int]"] | None = None,
) -> Timeline:
    """Run the schedule as fast as its dependencies allow; returns a simulated Timeline.

    A compute-only schedule pays each transfer between ranks as pure latency; one with sends and
    receives pays `send_host`, `recv_host` and the transfer from the later of its two ends.
    `durations[r][i]`, in ticks, replaces the time of `schedule.codes[r][i]` (an overlapped pair's
    stands at its second code), `lags[r][i]` the time on the wire of that action's input.

    Raises InputError where the costs do not fit, `Deadlock` where the order cannot finish.
    """
    program = Program(schedule, costs)
    if durations is not None or lags is not None:
        _replace(program, durations, lags)
    return timeline_of(program, program.run())


def _replace(
    program: Program,
    durations: Sequence["array[int]"] | None,
    lags: Sequence["array[int]"] | None,
) -> None:
    codes = program.schedule.codes
    for what, given in (("durations", durations), ("lags", lags)):
        if given is not None and [len(g) for g in given] != [len(c) for c in codes]:
            raise InputError(f"{what} must have one value for each action of each rank")
    for rank, start in enumerate(program.rank_start[:-1]):
        for i, code in enumerate(codes[rank]):
            node = program.node_of[start + i]
            if durations is not None and not code & JOINED:
                program.duration[node] = durations[rank][i]
            if lags is not None and code & KIND_MASK < Kind.W:
                program.lag[node] = lags[rank][i] if program.needs[node] >= 0 else 0
                if program.comms and node > program.lane_start[rank] and _in_front(program, node):
                    program.lag[node - 1] = lags[rank][i]


def _in_front(program: Program, node: int) -> bool:
    """Whether the node before belongs to the same action (it waits for the send)."""
    need = program.needs[node - 1]
    return need >= 0 and program.lane_of[need] != program.lane_of[node]


def timeline_of(program: Program, node_ends: "array[int]") -> Timeline:
    """Read the kernel's ends back into rank order."""
    schedule, costs = program.schedule, program.costs
    held = program.comms and not costs.overlap
    starts, ends = [], []
    for rank in range(schedule.ranks):
        first, last = program.rank_start[rank], program.rank_start[rank + 1]
        if (
            not program.comms
            and last - first == program.lane_start[rank + 1] - program.lane_start[rank]
        ):
            nodes = slice(program.lane_start[rank], program.lane_start[rank + 1])
            end = node_ends[nodes]
            start = array("q", map(int.__sub__, end, program.duration[nodes]))
        else:
            where = program.node_of[first:last]
            end = array("q", [node_ends[n] for n in where])
            start = array("q", [node_ends[n] - program.duration[n] for n in where])
            if held:
                for i, code in enumerate(schedule.codes[rank]):
                    if Kind.SEND_F <= code & KIND_MASK <= Kind.RECV_B:
                        end[i] = node_ends[where[i] + 1]
        for i, code in enumerate(schedule.codes[rank]):
            if code & JOINED:
                start[i], end[i] = start[i + 1], end[i + 1]
        starts.append(start)
        ends.append(end)
    finish = max(row[-1] for row in ends if row)
    communication, overhead, recompute = _parts(program)
    return Timeline(
        schedule=schedule,
        starts=tuple(starts),
        ends=tuple(ends),
        begin=min(row[0] for row in starts if row),
        finish=finish,
        communication=communication,
        overhead=overhead,
        recompute=recompute,
        transfers=_transfers(program, node_ends),
        unit=costs.unit,
        ticks_per_unit=costs.ticks_per_unit,
    )


def _parts(program: Program) -> list[tuple["array[int]", ...] | None]:
    """Communication, overhead and recompute inside every action; None where there is none."""
    schedule, costs = program.schedule, program.costs
    found: list[tuple[array[int], ...] | None] = []
    for part in ("communication", "overhead", "recompute"):
        times, pair_times = time_tables(schedule, costs, part)
        if not any(time > 0 for time in (*times, *pair_times)):
            found.append(None)
            continue
        stages = len(schedule.placement.rank_of)
        rows = []
        for codes in schedule.codes:
            row, joined, first = array("q"), -1, 0
            for code in codes:
                kind, stage, *_ = unpack(code)
                time = max(times[kind * stages + stage], 0)
                if code & JOINED:
                    joined, first, time = stage, time, 0
                elif joined >= 0:
                    time = first + time if pair_times[joined] < 0 else pair_times[joined]
                    joined = -1
                row.append(time)
            rows.append(row)
        found.append(tuple(rows))
    return found


def _transfers(program: Program, node_ends: "array[int]") -> tuple[Transfer, ...]:
    """Every tensor's way between two ranks, in the order in which the consumers need them."""
    rank_of = program.schedule.placement.rank_of
    found = []
    flat = (code for row in program.schedule.codes for code in row)
    for index, code in enumerate(flat):
        node = program.node_of[index]
        need = program.needs[node]
        kind, stage, microbatch, _ = unpack(code)
        other = stage - 1 if kind is Kind.F else stage + 1
        if kind > Kind.I or need < 0 or other >= len(rank_of) or rank_of[other] == rank_of[stage]:
            continue
        ready = node_ends[need]
        if program.comms:
            ready = max(ready, node_ends[program.needs[node - 1]])
        send = Action(Kind.SEND_F if kind is Kind.F else Kind.SEND_B, other, microbatch)
        found.append(
            Transfer(send, rank_of[other], rank_of[stage], ready, ready + program.lag[node])
        )
    return tuple(found)
