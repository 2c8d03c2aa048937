"""The critical path: the chain of actions and transfers that makes a step as long as it is.

Whatever is on it, made shorter by a little, makes the step shorter by as much.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from unbubble.action import (
    JOINED,
    TRANSFER,
    Action,
    is_transfer,
    overlap,
    receive_for,
    receive_of,
    send_of,
    unpack,
)
from unbubble.costs import Costs
from unbubble.schedule.order import Schedule
from unbubble.simulate.program import Program
from unbubble.simulate.simulation import arranged
from unbubble.simulate.times import time_tables


class Step(NamedTuple):
    """A piece of the path, in ticks; `transfer`: the action is the send of a tensor on its way."""

    action: Action
    rank: int
    start: int
    end: int
    transfer: bool = False


@dataclass(frozen=True)
class CriticalPath:
    """The steps of the longest chain, from the first start to the last end without a gap; of a
    pipeline without a flush its fill and its drain too, which belong to no step of it.

    Where several actions let one go on at the same moment, the rank's own comes first.
    `stage_shares[s]` is the part of the path that is F, B, I and W of the model's stage s: the
    step's sensitivity. With all times of stage s shorter by a small part x, the step is shorter by
    x × share. An overlapped pair is shared out as its two actions would take alone.
    """

    steps: tuple[Step, ...]
    stage_shares: tuple[Fraction, ...]

    @property
    def length(self) -> int:
        return sum(step.end - step.start for step in self.steps)

    @property
    def actions(self) -> tuple[Action, ...]:
        """The path without its transfers, and without posts of them that take no time."""
        return tuple(
            step.action
            for step in self.steps
            if not step.transfer and (step.end > step.start or step.action.kind not in TRANSFER)
        )

    @property
    def transfer_share(self) -> Fraction:
        """The part of the path that tensors spend on the wire."""
        time = sum(step.end - step.start for step in self.steps if step.transfer)
        return Fraction(time, self.length) if self.length else Fraction(0)


def critical_path(schedule: Schedule, costs: Costs, *, receive: str = "early") -> CriticalPath:
    """The critical path of a simulated step, its tail included; arguments as for `simulate`."""
    program = Program(arranged(schedule, costs, receive), costs)
    steps = tuple(_backwards(program))[::-1]
    alone, _ = time_tables(program.schedule, costs)
    stages = len(program.schedule.placement.rank_of)
    spent = [Fraction(0)] * costs.num_stages
    for step in steps:
        if not step.action.is_compute:
            continue
        parts = step.action.parts
        weights = [alone[part.kind * stages + part.stage] for part in parts]
        whole = sum(weights)
        for part, weight in zip(parts, weights, strict=True):
            share = Fraction(weight, whole) if whole else Fraction(1, len(parts))
            spent[part.stage % costs.num_stages] += share * (step.end - step.start)
    length = max(sum(step.end - step.start for step in steps), 1)
    return CriticalPath(steps, tuple(time / length for time in spent))


def _backwards(program: Program) -> Iterator[Step]:
    """From the last end back to 0: each node started when the one before it in its lane ended, or
    when the one that it needs did."""
    ends = program.run()
    describe = _describe(program)
    first = set(program.lane_start)
    node = ends.index(max(ends))
    while True:
        start = ends[node] - program.duration[node]
        step = describe(node)
        if step is None and program.duration[node]:  # a rank's first post, while it stands still
            step = (*_carried(program, node), False)
        if step is not None:
            yield Step(step[0], step[1], start, ends[node], step[2])
        if node not in first and ends[node - 1] == start:
            node -= 1
            continue
        if program.needs[node] < 0:
            return
        lag = program.lag[node]
        if lag:
            yield Step(*_carried(program, node), start - lag, start, node < len(program.codes))
        node = program.needs[node]


def _describe(program: Program) -> Callable[[int], tuple[Action, int, bool] | None]:
    """What a node is: an action, a transfer, or (None) no more than a need."""
    ranks, size, each = program.schedule.ranks, len(program.codes), program.transfer_nodes
    beside = {node: code for code, node in program.tail_nodes.items()}

    def describe(node: int) -> tuple[Action, int, bool] | None:
        node = beside.get(node, node)
        if node < size:
            code = program.codes[node]
            if code & JOINED or (program.held and is_transfer(code)):
                return None
            action = unpack(code)
            if node and program.codes[node - 1] & JOINED:
                action = overlap(unpack(program.codes[node - 1]), action)
            return action, program.rank_of_code(node), False
        transfer = (node - size) // each if each else len(program.sends)
        if transfer >= len(program.sends) or node != program.lane_start[ranks + transfer + 1] - 1:
            return None
        send = program.sends[transfer]
        return unpack(program.codes[send]), program.rank_of_code(send), True

    return describe


def _carried(program: Program, node: int) -> tuple[Action, int]:
    """Whose time a lag is: a transfer's, or where transfers hold the ranks, that of a post."""
    size, rank_of = len(program.codes), program.schedule.placement.rank_of
    if node < size:
        receive = receive_for(unpack(program.codes[node]))
        assert receive is not None  # nothing else comes from another rank
        send = send_of(receive)
        return send, rank_of[send.stage]
    transfer = (node - size) // program.transfer_nodes
    send = unpack(program.codes[program.sends[transfer]])
    if node == program.lane_start[program.schedule.ranks + transfer + 1] - 1:
        return send, rank_of[send.stage]
    receive = receive_of(send)
    return receive, rank_of[receive.stage]
