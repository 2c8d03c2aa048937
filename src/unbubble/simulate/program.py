"""Program: a schedule and its costs, linked into the kernel's lanes of nodes.

Linking is done once; `run` then simulates it with any durations in a few nanoseconds an action.
"""

from array import array
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate, chain
from mmap import mmap
from typing import NamedTuple

from unbubble.action import KIND_MASK, RECEIVES, SENDS, Kind, unpack
from unbubble.costs import CHANNELS, Costs
from unbubble.errors import InputError, some
from unbubble.schedule.order import Schedule
from unbubble.simulate import kernel
from unbubble.simulate.tail import link_tail
from unbubble.simulate.times import MAX_TOTAL_TICKS, check_total, fits, time_tables

bytes(31 << 20)
"""Made and dropped: glibc gives freed memory back at once until a large block was freed, and the
pages of a simulation's new buffers then cost more than the simulation."""


class Deadlock(InputError):  # noqa: N818  # the field's word
    """The order can never finish; `blocked` are the actions at which each rank is stuck."""

    def __init__(self, message: str, blocked: tuple[tuple[int, int], ...]):
        super().__init__(message)
        self.blocked = blocked
        """(rank, position in its codes) of every stuck rank; if only transfers are stuck, of their
        sends."""


class Program:
    """A linked schedule. Node k is code k of the ranks' orders joined; `transfers` lanes follow,
    each of `transfer_nodes` nodes of which the last is the time on the wire; then the tail's.
    """

    def __init__(self, schedule: Schedule, costs: Costs):
        """Raises InputError where the costs do not fit or the order is not one of its placement."""
        placement = schedule.placement
        if costs.num_stages != placement.num_stages:
            raise InputError(
                f"the costs have {costs.num_stages} stages and the schedule "
                f"{placement.num_stages}; they must be the same"
            )
        if not any(schedule.codes):
            raise InputError("the schedule holds no action")
        self.schedule = schedule
        self.costs = costs
        self.rank_start = array("i", [0, *accumulate(map(len, schedule.codes))])
        self.codes = array("q")
        for row in schedule.codes:
            self.codes.extend(row)
        counts = _zeros("q", 32)
        kernel.count_kinds(self.codes, counts)
        self.transfers = counts[Kind.SEND_F] + counts[Kind.SEND_B]
        receives = counts[Kind.RECV_F] + counts[Kind.RECV_B]
        self.comms = bool(self.transfers + receives)
        self.held = self.comms and not costs.overlap
        channel = CHANNELS.index(costs.channel)
        self.transfer_nodes = (2, 3, 4, 4)[channel] if self.comms else 0
        longest = self._link(channel, receives)
        self.tail_nodes: dict[int, int] = {}
        if counts[Kind.REDUCE_GRAD] or counts[Kind.CLIP]:
            self.tail_nodes = link_tail(self)
        self.nodes = len(self.duration)
        if longest * self.nodes >= MAX_TOTAL_TICKS:
            check_total(self.duration, self.lag)
        lanes = len(self.lane_start) - 1
        self._position, self._stack = _zeros("i", lanes), _zeros("i", lanes)
        self._behind, self._clock = _zeros("i", lanes), _zeros("q", lanes)

    def _link(self, channel: int, receives: int) -> int:
        """Make lanes of nodes; returns a time that no node's duration and lag exceed."""
        schedule, costs, placement = self.schedule, self.costs, self.schedule.placement
        rank_of, stages = array("i", placement.rank_of), len(placement.rank_of)
        up = array("i", (-1 if placement.is_first(s) else s - 1 for s in range(stages)))
        down = array("i", (-1 if placement.is_last(s) else s + 1 for s in range(stages)))
        lag_up, lag_down = self._wires(up, down)
        microbatches = max(schedule.microbatches, 1)
        size, fault = len(self.codes), _zeros("q", 3)
        if stages * microbatches > 16 * size + 1_000_000:
            raise InputError(
                f"microbatch {microbatches - 1} is the highest of a schedule with {size} actions; "
                "microbatches are numbered from 0 without large gaps"
            )
        tables = array("i", [-1]) * ((7 if self.comms else 3) * stages * microbatches)
        self.sends = _zeros("i", self.transfers)
        found = kernel.locate(
            self.codes, self.rank_start, rank_of, len(Kind), microbatches, tables, self.sends, fault
        )
        if found < 0:
            self._raise_fault(fault)
        nodes = size + found * self.transfer_nodes
        self.needs, self.lag = _zeros("i", nodes), _zeros("q", nodes)
        self.duration = _zeros("q", nodes)
        times, pair_times = time_tables(schedule, costs)
        if kernel.fill_times(self.codes, stages, times, pair_times, self.duration, fault) < 0:
            self._raise_fault(fault)
        remote_up = bytes(t >= 0 and rank_of[t] != rank_of[s] for s, t in enumerate(up))
        remote_down = bytes(t >= 0 and rank_of[t] != rank_of[s] for s, t in enumerate(down))
        if kernel.link(
            self.codes, microbatches, up, down, remote_up, remote_down, lag_up, lag_down,
            self.transfer_nodes, tables, self.needs, self.lag, fault,
        ) < 0:  # fmt: skip
            self._raise_fault(fault)
        self.lane_start = self.rank_start[:]
        if self.comms:
            stream_up, stream_down, streams = _streams(rank_of, up, down, costs.channel)
            self.lane_start.extend(_zeros("i", found))
            if kernel.link_transfers(
                self.codes, self.rank_start, rank_of, microbatches, up, down, lag_up, lag_down,
                channel, stream_up, stream_down, self.held, tables, self.sends, receives,
                array("i", [-1]) * streams, self.lane_start, self.needs, self.lag,
                self.duration, fault,
            ) < 0:  # fmt: skip
                self._raise_fault(fault)
        wires = (*lag_up, *lag_down)
        if min(wires) < 0:
            raise InputError(f"a transfer takes {min(wires)} ticks; every time is at least 0")
        return 2 * max(*times, *pair_times) + max(wires)

    def _wires(self, up: "array[int]", down: "array[int]") -> tuple["array[int]", "array[int]"]:
        """Transfer times into every stage, from below and from above.

        A gradient has the size of the activation that it belongs to: the lower stage's output.
        """
        costs, rank_of = self.costs, self.schedule.placement.rank_of
        known: dict[tuple[int, int, int], int] = {}

        def wire(source: int, destination: int, lower: int) -> int:
            if source < 0:
                return 0
            size = costs.stages[lower % costs.num_stages].output_bytes
            key = rank_of[source], rank_of[destination], size
            if key not in known:
                known[key] = fits(costs.edge_between(*key[:2]).transfer(size))
            return known[key]

        return (
            array("q", (wire(t, s, t) for s, t in enumerate(up))),
            array("q", (wire(t, s, s) for s, t in enumerate(down))),
        )

    def times(
        self,
        durations: Sequence["array[int]"] | None = None,
        lags: Sequence["array[int]"] | None = None,
    ) -> tuple["array[int]", "array[int]"]:
        """Durations and lags of the nodes for `run`, with some of them replaced.

        `durations[r][i]`, in ticks, is the time of `schedule.codes[r][i]` (an overlapped pair's
        stands at its second code), `lags[r][i]` the time on the wire of that action's input.
        """
        for what, given in (("durations", durations), ("lags", lags)):
            if given is not None and [*map(len, given)] != [*map(len, self.schedule.codes)]:
                raise InputError(f"{what} must have one value for each action of each rank")
        size = len(self.codes)
        duration, lag = self.duration[:], self.lag[:]
        if durations is not None:
            duration[:size] = array("q", chain.from_iterable(durations))
            for code, node in self.tail_nodes.items():
                duration[node], duration[code] = duration[code], 0
            if self.held:
                self._move_posts(duration, lag)
        if lags is not None:
            wires = array("q", chain.from_iterable(lags))
            if self.comms:
                for code, wire in enumerate(wires):
                    if self.codes[code] & KIND_MASK < Kind.W and self.needs[code] >= size:
                        duration[self.needs[code]] = wire
            else:
                lag[:size] = wires
        check_total(duration, lag)
        return duration, lag

    def _move_posts(self, duration: "array[int]", lag: "array[int]") -> None:
        """Where transfers hold the ranks, the time of posting is a lag inside the transfer."""
        for code, node in enumerate(self.needs[: len(self.codes)]):
            kind = self.codes[code] & KIND_MASK
            if kind in SENDS:
                lag[node], duration[code] = duration[code], 0
            elif kind in RECEIVES:
                first = node - self.transfer_nodes + 1
                posted = lag if self.needs[first] >= 0 else duration
                posted[first], duration[code] = duration[code], 0

    def run(
        self,
        duration: "array[int] | None" = None,
        lag: "array[int] | None" = None,
        *,
        ends: "array[int] | None" = None,
    ) -> "array[int]":
        """The end of every node, in ticks, in `ends` where that is given. Raises Deadlock."""
        if ends is None:
            ends = _zeros("q", self.nodes)
        done = kernel.run(
            self.lane_start, self.needs,
            self.lag if lag is None else lag,
            self.duration if duration is None else duration,
            ends, self._position, self._clock, self._stack, self._behind,
        )  # fmt: skip
        if done < self.nodes:
            self._raise_deadlock()
        return ends

    def finish(self) -> int:
        """When the last node of the last `run` ended."""
        return int(kernel.largest(self._clock))

    def order(self) -> "Known":
        """A topological order, for `Known.run`. Raises Deadlock."""
        order, place = _zeros("i", self.nodes), array("i", [-1]) * self.nodes
        count = kernel.find_order(
            self.lane_start, self.needs, order, place, self._position, self._stack, self._behind,
        )  # fmt: skip
        if count < self.nodes:
            self._raise_deadlock()
        before, needs = _mapped("i", self.nodes + 1), _mapped("i", self.nodes + 1)
        kernel.renumber(self.lane_start, self.needs, place, before, needs)
        return Known(order, before, needs)

    def _raise_deadlock(self) -> None:
        blocked = [
            (rank, self._position[rank] - self.rank_start[rank])
            for rank in range(self.schedule.ranks)
            if self._position[rank] < self.rank_start[rank + 1]
        ]
        for transfer, send in enumerate(self.sends if not blocked else ()):
            lane = self.schedule.ranks + transfer
            if self._position[lane] < self.lane_start[lane + 1]:
                rank = self.rank_of_code(send)
                blocked.append((rank, send - self.rank_start[rank]))
        names = [
            f"{unpack(self.schedule.codes[rank][position])} on rank {rank}"
            for rank, position in blocked
        ]
        raise Deadlock(
            f"the schedule deadlocks: these wait for each other: {some(names)}", tuple(blocked)
        )

    def rank_of_code(self, index: int) -> int:
        """The rank of a code, by its number in the ranks' orders joined."""
        return bisect(self.rank_start, index) - 1

    def _raise_fault(self, fault: "array[int]") -> None:
        what, index, stage = fault
        rank = self.rank_of_code(index)
        code = self.codes[index]
        placement = self.schedule.placement
        if what == kernel.MALFORMED and code & KIND_MASK not in set(Kind):
            raise InputError(f"code {code} on rank {rank} is not an action")
        action = unpack(code)
        where = f"{action} on rank {rank}"
        if what == kernel.UNKNOWN_TIME:
            raise InputError(
                f"{where}: the costs of stage {action.stage} give no time for {action.kind.name}; "
                "a schedule that splits the backward needs backward_input and backward_weight"
            )
        if what == kernel.TWICE:
            raise InputError(f"{where} stands in the schedule twice; each action happens once")
        if what == kernel.MISPLACED:
            raise InputError(
                f"{where}: stage {action.stage} lives on rank {placement.rank_of[action.stage]}"
            )
        if what == kernel.LOCAL:
            raise InputError(f"{where} leads to no other rank; only those carry transfers")
        if what == kernel.MALFORMED:
            raise InputError(
                f"{where} is no action of a schedule with {len(placement.rank_of)} "
                "stages; it needs a stage of theirs, a microbatch, and an overlapped pair a partner"
            )
        raise InputError(
            f"{where} waits for an action of stage {stage} on microbatch {action.microbatch} that "
            "the schedule does not hold"
        )


class Known(NamedTuple):
    """A program's nodes in a topological order, for simulating it again and again.

    Node `order[v − 1]` of the program is known as v; 0 stands for "nothing". `before[v]` runs
    before it in its lane, `needs[v]` is what it needs (0: nothing).
    """

    order: "array[int]"
    before: "memoryview[int]"
    needs: "memoryview[int]"

    def sorted(self, values: "array[int]") -> "memoryview[int]":
        """Durations or lags of a program's nodes, in this order."""
        found = self.buffer()
        found[1:] = array("q", map(values.__getitem__, self.order))
        return found

    def buffer(self) -> "memoryview[int]":
        """Place for the ends of many runs."""
        return _mapped("q", len(self.before))

    def run(
        self,
        duration: "memoryview[int]",
        lag: "memoryview[int]",
        *,
        ends: "memoryview[int] | None" = None,
    ) -> "memoryview[int]":
        """The ends of all nodes, from sorted durations and lags; in `ends` where that is given."""
        if ends is None:
            ends = self.buffer()
        kernel.run_known(self.before, self.needs, lag, duration, ends)
        return ends


def _streams(
    rank_of: "array[int]", up: "array[int]", down: "array[int]", channel: str
) -> tuple["array[int]", "array[int]", int]:
    """The streams of every stage's rank to those of the stages below and above, and how many."""
    found: dict[tuple[int, ...], int] = {}
    if channel == "unlimited":
        return _zeros("i", len(up)), _zeros("i", len(up)), 0

    def stream(stage: int, other: int) -> int:
        alone = channel == "rank" or other < 0
        ends = (rank_of[stage],) if alone else (rank_of[stage], rank_of[other])
        return found.setdefault(ends, len(found))

    below = array("i", (stream(s, t) for s, t in enumerate(up)))
    return below, array("i", (stream(s, t) for s, t in enumerate(down))), len(found)


def _zeros(typecode: str, length: int) -> "array[int]":
    return array(typecode, [0]) * length


def _mapped(typecode: str, length: int) -> "memoryview[int]":
    """Zeros on pages of their own: those of a heap lie anywhere, and what is run on them again and
    again takes up to half as long again."""
    return memoryview(mmap(-1, length * array(typecode).itemsize)).cast(typecode)  # type: ignore[call-overload, no-any-return]
