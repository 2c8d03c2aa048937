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
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

from unbubble.action import receive_of, send_of, unpack
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.schedule.inputs import wanted_receive
from unbubble.schedule.lowering import lower
from unbubble.schedule.order import Schedule
from unbubble.simulate import kernel
from unbubble.simulate.program import Program
from unbubble.simulate.tail import with_tail
from unbubble.simulate.timeline import Timeline, Transfer, Transfers
from unbubble.simulate.times import PARTS, parts_of, time_tables


def simulate(
    schedule: Schedule,
    costs: Costs,
    *,
    receive: str = "early",
    durations: Sequence["array[int]"] | None = None,
    lags: Sequence["array[int]"] | None = None,
) -> Timeline:
    """Run the schedule as fast as its dependencies allow; returns a simulated Timeline.

    A compute-only schedule pays each transfer between ranks as pure latency; one with sends and
    receives pays `send_host`, `recv_host` and the transfer from the later of its two ends. Costs
    whose transfers hold the ranks or share channels need those: a compute-only schedule is lowered
    first, its receives posted as `receive` says. The tail of the costs comes at the end.
    `durations[r][i]`, in ticks, replaces the time of `schedule.codes[r][i]` (an overlapped pair's
    stands at its second code), `lags[r][i]` the time on the wire of that action's input.

    Raises InputError where the costs do not fit, `Deadlock` where the order cannot finish.
    """
    program = Program(arranged(schedule, costs, receive), costs)
    if durations is None and lags is None:
        return timeline_of(program, program.duration, program.lag)
    return timeline_of(program, *program.times(durations, lags))


def arranged(schedule: Schedule, costs: Costs, receive: str = "early") -> Schedule:
    """The schedule with all that the costs speak of: sends and receives where they need them, and
    the tail."""
    needs_sends = not costs.overlap or costs.channel != "unlimited"
    if needs_sends and not schedule.with_comms:
        try:
            schedule = lower(schedule, receive)
        except InputError:
            Program(schedule, costs).run()  # it says exactly where an order cannot finish
            raise
    return with_tail(schedule, costs)


def timeline_of(program: Program, duration: "array[int]", lag: "array[int]") -> Timeline:
    """Run a program with these times of its nodes, and read their ends back into rank order."""
    ends = program.run(duration, lag)
    size, starts = len(program.codes), array("q", [0]) * len(program.codes)
    kernel.read_starts(program.codes, program.rank_start, duration, ends, program.held, starts)
    for code, node in program.tail_nodes.items():
        starts[code], ends[code] = ends[node] - duration[node], ends[node]
    there = parts_of(program.costs)
    communication, overhead, recompute = (
        _part(program, part) if part in there else None for part in PARTS
    )
    return Timeline(
        schedule=program.schedule,
        starts=_by_rank(program, starts),
        ends=_by_rank(program, ends[:size]),
        begin=min(starts[first] for first in program.rank_start[:-1] if first < size),
        finish=program.finish(),
        communication=communication,
        overhead=overhead,
        recompute=recompute,
        transfers=Transfers(partial(_transfers, program, ends, duration, lag)),
        unit=program.costs.unit,
        ticks_per_unit=program.costs.ticks_per_unit,
    )


def _by_rank(program: Program, flat: "array[int]") -> tuple["array[int]", ...]:
    return tuple(flat[a:b] for a, b in pairwise(program.rank_start))


def _part(program: Program, part: str) -> tuple["array[int]", ...]:
    """Communication, overhead or recompute inside every action."""
    times, pair_times = time_tables(program.schedule, program.costs, part)
    known = array("q", (max(time, 0) for time in times))
    flat, fault = array("q", [0]) * len(program.codes), array("q", [0, 0, 0])
    stages = len(program.schedule.placement.rank_of)
    kernel.fill_times(program.codes, stages, known, pair_times, flat, fault)
    return _by_rank(program, flat)


def _transfers(
    program: Program, ends: "array[int]", duration: "array[int]", lag: "array[int]"
) -> Iterator[Transfer]:
    """Every tensor's way between two ranks: with sends and receives in the order of the sends, in
    a compute-only order in that of the actions that need them."""
    rank_of = program.schedule.placement.rank_of
    if program.comms:
        for t, code in enumerate(program.sends):
            send = unpack(program.codes[code])
            final = program.lane_start[program.schedule.ranks + t + 1] - 1
            ranks = rank_of[send.stage], rank_of[receive_of(send).stage]
            yield Transfer(send, *ranks, ends[final] - duration[final], ends[final])
        return
    placement = program.schedule.placement
    for code, need, wire in zip(program.codes, program.needs, lag, strict=False):
        action = unpack(code)
        receive = wanted_receive(action, placement)
        if receive is not None:
            send = send_of(receive)
            ranks = rank_of[send.stage], rank_of[action.stage]
            yield Transfer(send, *ranks, ends[need], ends[need] + wire)
