"""Program: a schedule and its costs, linked into the kernel's lanes of nodes.

Linking is done once; `run` then simulates it with any durations in a few nanoseconds an action.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate, chain

from unbubble.action import KIND_MASK, Kind, unpack
from unbubble.costs import Costs, Duration
from unbubble.errors import InputError
from unbubble.schedule.order import Schedule
from unbubble.simulate import kernel

MAX_TOTAL_TICKS = 1 << 61


class Deadlock(InputError):  # noqa: N818  # the field's word
    """The order can never finish; `blocked` are the actions at which each rank is stuck."""

    def __init__(self, message: str, blocked: tuple[tuple[int, int], ...]):
        super().__init__(message)
        self.blocked = blocked
        """(rank, position in its codes) of every stuck rank."""


class Program:
    """A linked schedule. `node_of[i]` is the node at which code i (ranks joined) ends."""

    def __init__(self, schedule: Schedule, costs: Costs):
        self.schedule = schedule
        self.costs = costs
        self.comms = schedule.with_comms
        self.rank_start = array("i", [0, *accumulate(map(len, schedule.codes))])
        self._link()

    def _link(self) -> None:
        schedule, costs, placement = self.schedule, self.costs, self.schedule.placement
        if costs.num_stages != placement.num_stages:
            raise InputError(
                f"the costs have {costs.num_stages} stages and the schedule "
                f"{placement.num_stages}; they must be the same"
            )
        stages = len(placement.rank_of)
        up = [-1 if placement.is_first(s) else s - 1 for s in range(stages)]
        down = [-1 if placement.is_last(s) else s + 1 for s in range(stages)]
        times, pair_times = time_tables(schedule, costs)
        codes = array("q")
        for row in schedule.codes:
            codes.extend(row)
        size = len(codes)
        rank_of = placement.rank_of
        remote_up = bytes(t >= 0 and rank_of[t] != rank_of[s] for s, t in enumerate(up))
        remote_down = bytes(t >= 0 and rank_of[t] != rank_of[s] for s, t in enumerate(down))
        lag_up = array("q", (self._lag(t, s, t) for s, t in enumerate(up)))
        lag_down = array("q", (self._lag(t, s, s) for s, t in enumerate(down)))
        room = 2 * size if self.comms else size
        self.node_of = _zeros("i", size)
        lane_start = _zeros("i", schedule.ranks + 1)
        needs, lag, duration = _zeros("i", room), _zeros("q", room), _zeros("q", room)
        lane_of = _zeros("i", room)
        cells = stages * max(schedule.microbatches, 1)
        tables = array("i", [-1]) * (6 * cells)
        fault = array("q", [0, 0, 0])
        nodes = kernel.link(
            codes, self.rank_start, array("i", up), array("i", down), remote_up, remote_down,
            max(schedule.microbatches, 1), times, pair_times, lag_up, lag_down,
            self.comms, self.comms and not costs.overlap, tables, self.node_of, lane_start, needs,
            lag, duration, lane_of, fault,
        )  # fmt: skip
        if nodes < 0:
            self._raise_fault(codes, fault)
        self.nodes = nodes
        self.lane_start = lane_start
        self.needs, self.lag, self.duration = needs[:nodes], lag[:nodes], duration[:nodes]
        self.lane_of = lane_of[:nodes]
        if sum(self.duration) + sum(self.lag) >= MAX_TOTAL_TICKS:
            raise InputError("the times are too long to add up exactly; use a coarser unit")
        lanes = len(lane_start) - 1
        self._position, self._stack = _zeros("i", lanes), _zeros("i", lanes)
        self._behind, self._clock = _zeros("i", lanes), _zeros("q", lanes)
        self._waiter = array("i", [-1]) * nodes

    def _lag(self, source_stage: int, destination_stage: int, output_of: int) -> int:
        """Transfer time into a stage; `output_of` owns the tensor's size (a gradient has that of
        the activation it belongs to)."""
        if source_stage < 0:
            return 0
        rank_of, costs = self.schedule.placement.rank_of, self.costs
        edge = costs.edge_between(rank_of[source_stage], rank_of[destination_stage])
        return edge.transfer(costs.stages[output_of % costs.num_stages].output_bytes)

    def run(self, duration: "array[int] | None" = None) -> "array[int]":
        """The end of every node, in ticks. Raises Deadlock."""
        ends = _zeros("q", self.nodes)
        done = kernel.run(
            self.lane_start, self.needs, self.lag,
            self.duration if duration is None else duration,
            ends, self._position, self._clock, self._stack, self._behind, self._waiter,
        )  # fmt: skip
        if done < self.nodes:
            self._waiter = array("i", [-1]) * self.nodes
            self._raise_deadlock()
        return ends

    def _raise_deadlock(self) -> None:
        code_at = {node: i for i, node in enumerate(self.node_of)}
        blocked = []
        for rank in range(self.schedule.ranks):
            node = self._position[rank]
            if node == self.lane_start[rank + 1]:
                continue
            while node not in code_at:  # a node in front of an action belongs to it
                node += 1
            blocked.append((rank, code_at[node] - self.rank_start[rank]))
        names = [
            f"{unpack(self.schedule.codes[rank][position])} on rank {rank}"
            for rank, position in blocked
        ]
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        raise Deadlock(
            f"the schedule deadlocks: these wait for each other: {shown}", tuple(blocked)
        )

    def _raise_fault(self, codes: "array[int]", fault: "array[int]") -> None:
        what, index, stage = fault
        action = unpack(codes[index])
        rank = next(r for r in range(self.schedule.ranks) if index < self.rank_start[r + 1])
        where = f"{action} on rank {rank}"
        if what == kernel.UNKNOWN_TIME:
            raise InputError(
                f"{where}: the costs of stage {action.stage} give no time for {action.kind.name}; "
                "a schedule that splits the backward needs backward_input and backward_weight"
            )
        if what == kernel.TWICE:
            raise InputError(f"{where} stands in the schedule twice; each action happens once")
        raise InputError(
            f"{where} waits for an action of stage {stage} on microbatch {action.microbatch} that "
            "the schedule does not hold"
        )


def time_tables(
    schedule: Schedule, costs: Costs, part: str = "total"
) -> tuple["array[int]", "array[int]"]:
    """Ticks by kind and placed stage (−1: unknown), and of overlapped pairs by forward stage.

    `part`: "total", or what of it is "communication", "overhead" or "recompute" (its kernels).
    """
    rank_of, base = schedule.placement.rank_of, costs.num_stages
    around = costs.action_overhead if part in ("total", "overhead") else 0

    def ticks(duration: Duration | None, stage: int) -> int:
        if duration is None:
            return -1
        factor = costs.speed.get(rank_of[stage])
        time: int = getattr(duration, "compute" if part == "recompute" else part)
        return (time if factor is None else round(time * factor)) + around

    def of(kind: Kind, stage: int) -> Duration | None:
        stage_costs = costs.stages[stage % base]
        if part != "recompute":
            return stage_costs.of(kind)
        return stage_costs.recompute if kind in (Kind.B, Kind.I) else Duration()

    stages = range(len(rank_of))
    host = {
        Kind.SEND_F: costs.send_host,
        Kind.SEND_B: costs.send_host,
        Kind.RECV_F: costs.recv_host,
        Kind.RECV_B: costs.recv_host,
    }
    rows: list[Sequence[int]] = []
    for kind in Kind:
        if kind in (Kind.F, Kind.B, Kind.I, Kind.W):
            rows.append([ticks(of(kind, s), s) for s in stages])
        elif part == "total":
            rows.append([host.get(kind, 0)] * len(stages))
        else:
            rows.append([0] * len(stages))
    if part == "recompute":  # a pair's own time includes it, unknown how much
        pairs = [-1] * len(stages)
    else:
        pairs = [ticks(costs.stages[s % base].overlapped, s) for s in stages]
    return array("q", chain.from_iterable(rows)), array("q", pairs)


def _zeros(typecode: str, length: int) -> "array[int]":
    return array(typecode, bytes(array(typecode).itemsize * length))


def is_transfer(code: int) -> bool:
    return Kind.SEND_F <= code & KIND_MASK <= Kind.RECV_B
