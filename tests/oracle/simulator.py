"""A simulator that is slow and obviously right, sharing nothing with the package's own.

Everything that happens is a *job* with a list of the moments that it waits for. Jobs whose moments
are all known are done, again and again, until nothing changes; what is left then waits for ever.
"""

from fractions import Fraction

from unbubble.action import Kind


class StuckError(Exception):
    """Some jobs wait for ever: the (rank, number of the action) at which ranks are stuck."""


def simulate(schedule, costs, times=None, wires=None):
    """`{(rank, number): (start, end)}` of all actions, and `{send: (start, end)}` of transfers.

    Actions are counted with an overlapped pair as one; times are Fractions. `times` by rank and
    number and `wires` by send replace what the costs say.
    """
    return _Simulator(schedule, costs, times, wires).run()


class _Simulator:
    def __init__(self, schedule, costs, times, wires):
        self.costs = costs
        self.times, self.wires = times, wires
        self.place = schedule.placement
        self.rows = [list(schedule.actions(rank)) for rank in range(schedule.ranks)]
        self.comms = schedule.with_comms
        self.where = {}  # part of an action -> (rank, number)
        for rank, row in enumerate(self.rows):
            for number, action in enumerate(row):
                for part in action.parts:
                    self.where[part.kind, part.stage, part.microbatch, number * _whole(part)] = (
                        rank,
                        number,
                    )
        self.start, self.end, self.posted = {}, {}, {}
        self.arrival = {}  # (send kind, stage, microbatch) -> (start, end)

    def run(self):
        jobs = [("action", r, i) for r, row in enumerate(self.rows) for i in range(len(row))]
        if self.comms:
            for row in self.rows:
                sends = [a for a in row if a.kind in (Kind.SEND_F, Kind.SEND_B)]
                jobs += [("transfer", a.kind, a.stage, a.microbatch) for a in sends]
        while jobs:
            left = [job for job in jobs if not getattr(self, "_" + job[0])(*job[1:])]
            if len(left) == len(jobs):
                first = {job[1]: job[2] for job in reversed(left) if job[0] == "action"}
                raise StuckError(sorted(first.items()))
            jobs = left
        times = {key: (self.start[key], self.end[key]) for key in self.start}
        return times, self.arrival

    def _at(self, kinds, stage, microbatch):
        """Where an action of one of these kinds stands."""
        for kind in kinds:
            if (kind, stage, microbatch, 0) in self.where:
                return self.where[kind, stage, microbatch, 0]
        raise KeyError((kinds, stage, microbatch))

    def _action(self, rank, number):
        """Do an action if all that it waits for is known; returns whether it is done."""
        action, key = self.rows[rank][number], (rank, number)
        moments = [self._before(rank, number)]
        if action.kind in (Kind.SEND_F, Kind.SEND_B):
            made = (Kind.F,) if action.kind is Kind.SEND_F else (Kind.B, Kind.I)
            moments.append(self.end.get(self._at(made, action.stage, action.microbatch)))
        if action.kind <= Kind.W or action.kind is Kind.OVERLAP_F_B:
            moments += [self._input(part) for part in action.parts]
        if action.kind is Kind.CLIP:
            moments += self._clip(rank, number)
        if action.kind is Kind.OPTIMIZER and self.costs.tail.overlap_reduce:
            moments += self._reductions(rank)
        if action.kind is Kind.REDUCE_GRAD and self.costs.tail.overlap_reduce:
            before = [i for i in range(number) if self.rows[rank][i].kind is Kind.REDUCE_GRAD]
            moments += [self.end.get((rank, i)) for i in before]
        if None in moments:
            return False
        start = max(moments, default=Fraction(0))
        time = self._time(action, rank) if self.times is None else self.times[key]
        if Kind.SEND_F <= action.kind <= Kind.RECV_B:
            self.posted[key] = start + time
            if not self.costs.overlap:
                _, arrived = self.arrival.get(self._transfer_of(action), (None, None))
                if arrived is None:
                    return False
                self.start[key], self.end[key] = start, arrived
                return True
        self.start[key], self.end[key] = start, start + time
        return True

    def _before(self, rank, number):
        """When a rank's thread is free for an action: reductions may run beside it."""
        number -= 1
        beside = self.costs.tail.overlap_reduce
        while number >= 0 and beside and self.rows[rank][number].kind is Kind.REDUCE_GRAD:
            number -= 1
        return Fraction(0) if number < 0 else self.end.get((rank, number))

    def _input(self, part):
        """When the input of F, B, I or W is there."""
        kind, stage, microbatch = part[:3]
        if kind is Kind.W:
            return self.end.get(self._at((Kind.I, Kind.B), stage, microbatch))
        if kind is Kind.F:
            if self.place.is_first(stage):
                return Fraction(0)
            source, made, send = stage - 1, (Kind.F,), Kind.SEND_F
        elif self.place.is_last(stage):
            return self.end.get(self._at((Kind.F,), stage, microbatch))
        else:
            source, made, send = stage + 1, (Kind.B, Kind.I), Kind.SEND_B
        there = self.end.get(self._at(made, source, microbatch))
        if self.place.rank_of[source] == self.place.rank_of[stage]:
            return there
        if self.comms:
            return self.arrival.get((send, source, microbatch), (None, None))[1]
        if there is None:
            return None
        wire = self._wire(send, source, microbatch)
        self.arrival[send, source, microbatch] = there, there + wire
        return there + wire

    def _transfer(self, kind, stage, microbatch):
        """A transfer starts when both ends have posted it and its channel is free."""
        sender = self._at((kind,), stage, microbatch)
        other, receive = (
            (stage + 1, Kind.RECV_F) if kind is Kind.SEND_F else (stage - 1, Kind.RECV_B)
        )
        receiver = self._at((receive,), other, microbatch)
        moments = [self.posted.get(sender), self.posted.get(receiver)]
        channel, me = self.costs.channel, (kind, stage, microbatch)
        if channel != "unlimited":
            for (rank, number), peer in ((sender, receiver[0]), (receiver, sender[0])):
                for action in self.rows[rank][:number]:
                    if not Kind.SEND_F <= action.kind <= Kind.RECV_B:
                        continue
                    earlier = self._transfer_of(action)
                    source, destination = self._ends_of(earlier)
                    same_pair = {source, destination} == {rank, peer}
                    same_link = (source, destination) == self._ends_of(me)
                    if (
                        channel == "rank"
                        or (channel == "pair" and same_pair)
                        or (channel == "link" and same_link and rank == source)
                    ):
                        moments.append(self.arrival.get(earlier, (None, None))[1])
        if None in moments:
            return False
        start = max(moments)
        self.arrival[me] = start, start + self._wire(kind, stage, microbatch)
        return True

    def _transfer_of(self, action):
        """The transfer that a send or a receive belongs to, by its send."""
        if action.kind in (Kind.SEND_F, Kind.SEND_B):
            return action[:3]
        if action.kind is Kind.RECV_F:
            return Kind.SEND_F, action.stage - 1, action.microbatch
        return Kind.SEND_B, action.stage + 1, action.microbatch

    def _ends_of(self, transfer):
        kind, stage, _ = transfer
        other = stage + 1 if kind is Kind.SEND_F else stage - 1
        return self.place.rank_of[stage], self.place.rank_of[other]

    def _wire(self, kind, stage, microbatch):
        if self.wires is not None:
            return self.wires.get((kind, stage, microbatch), Fraction(0))
        other = stage + 1 if kind is Kind.SEND_F else stage - 1
        ranks = self.place.rank_of[stage], self.place.rank_of[other]
        edge = self.costs.edges.get(ranks, self.costs.edge)
        below = min(stage, other) % self.place.num_stages  # whose output it is, or the gradient of
        size = self.costs.stages[below].output_bytes
        return Fraction(edge.latency + round(edge.ticks_per_byte * size))

    def _time(self, action, rank):
        if action.kind in (Kind.SEND_F, Kind.SEND_B):
            return Fraction(self.costs.send_host)
        if action.kind in (Kind.RECV_F, Kind.RECV_B):
            return Fraction(self.costs.recv_host)
        stage = self.costs.stages[action.stage % self.place.num_stages]
        tail = self.costs.tail
        if action.kind is Kind.REDUCE_GRAD:
            held = self.place.stages_of(rank)
            odd = tail.reduce % len(held) if action.stage == held[0] else 0
            return Fraction(tail.reduce // len(held) + odd)
        if action.kind is Kind.CLIP:
            return Fraction(tail.clip)
        if action.kind is Kind.OPTIMIZER:
            return self._scaled(tail.optimizer, rank)
        if action.pair is not None:
            if stage.overlapped is None:
                return sum((self._time(part, rank) for part in action.parts), Fraction(0))
            return self._scaled(sum(stage.overlapped), rank) + self.costs.action_overhead
        if action.kind is Kind.F:
            parts = [stage.forward]
        elif action.kind is Kind.W:
            parts = [stage.backward_weight, stage.recompute_weight]
        elif action.kind is Kind.I:
            parts = [stage.backward_input, stage.recompute]
        elif stage.backward is not None:
            parts = [stage.backward, stage.recompute]
        else:
            parts = [stage.backward_input, stage.backward_weight, stage.recompute]
        return self._scaled(sum(map(sum, parts)), rank) + self.costs.action_overhead

    def _scaled(self, ticks, rank):
        return Fraction(round(ticks * self.costs.speed.get(rank, Fraction(1))))

    def _clip(self, rank, number):
        """Clipping waits for every rank: for what each did before its own, and its reductions."""
        mine = [a.kind for a in self.rows[rank][:number]].count(Kind.CLIP)
        moments = []
        for other, row in enumerate(self.rows):
            clips = [i for i, a in enumerate(row) if a.kind is Kind.CLIP]
            if mine < len(clips):
                moments.append(self._before(other, clips[mine]))
            if self.costs.tail.overlap_reduce:
                moments += self._reductions(other)
        return moments

    def _reductions(self, rank):
        row = self.rows[rank]
        return [self.end.get((rank, i)) for i, a in enumerate(row) if a.kind is Kind.REDUCE_GRAD]


def _whole(part):
    """1 for actions of a whole stage, which may come more than once."""
    return 1 if part.microbatch < 0 else 0
