"""The check's oracle: the rules of a schedule one by one over a list of its actions, and every
rank stepped by hand. Slow and plain; it shares nothing with the check but the words.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from unbubble.action import Action, Kind, unpack

BACKWARD = (Kind.B, Kind.I)
TAIL = (Kind.REDUCE_GRAD, Kind.CLIP, Kind.OPTIMIZER)


class Spot(NamedTuple):
    """A plain action (a part of a pair) where it stands."""

    rank: int
    position: int
    action: Action


def spots_of(rows):
    return [
        Spot(rank, position, part)
        for rank, row in enumerate(rows)
        for position, action in enumerate(row)
        for part in action.parts
    ]


class Pipeline:
    """Where the stages live and who hands over to whom."""

    def __init__(self, placement):
        self.rank_of = placement.rank_of
        self.stages = placement.num_stages
        self.copies = placement.copies

    def next(self, stage):
        """The next stage, or None for the last of its copy."""
        return None if stage % self.stages == self.stages - 1 else stage + 1

    def previous(self, stage):
        return None if stage % self.stages == 0 else stage - 1

    def remote(self, stage, other):
        return other is not None and self.rank_of[stage] != self.rank_of[other]

    def other_end(self, action):
        """The other end of a send or receive, or None if there can be no such transfer."""
        kind, up = {
            Kind.SEND_F: (Kind.RECV_F, True),
            Kind.RECV_F: (Kind.SEND_F, False),
            Kind.SEND_B: (Kind.RECV_B, False),
            Kind.RECV_B: (Kind.SEND_B, True),
        }.get(action.kind, (None, True))
        if kind is None:
            return None
        other = self.next(action.stage) if up else self.previous(action.stage)
        return Action(kind, other, action.microbatch) if self.remote(action.stage, other) else None


def homes(rows):
    """{stage: rank} of a file's rows of codes: where each stage is used most."""
    used = defaultdict(list)
    for rank, row in enumerate(rows):
        for action in map(unpack, row):
            used[action.stage].append(rank)
    return {stage: max(sorted(set(ranks)), key=ranks.count) for stage, ranks in used.items()}


def faults(rows, placement, flush=True):
    """{(rank, position, action)} of every fault."""
    pipeline = Pipeline(placement)
    spots = spots_of(rows)
    homes = dict(enumerate(pipeline.rank_of))
    misplaced = {_named(s) for s in spots if homes.get(s.action.stage) != s.rank}
    if misplaced:
        return misplaced
    places = defaultdict(list)  # action → positions on its rank
    for spot in spots:
        places[spot.action].append(spot.position)
    first = {action: positions[0] for action, positions in places.items()}
    expected = _microbatches(first, pipeline)
    found = set()

    # each action once
    repeatable = {Kind.UNSHARD, Kind.RESHARD} | (set() if flush else set(TAIL))
    seen = set()
    for spot in spots:
        if spot.action in seen and spot.action.kind not in repeatable:
            found.add(_named(spot))
        seen.add(spot.action)

    # all that is needed is there
    lengths = [len(row) for row in rows]
    for stage, rank in enumerate(pipeline.rank_of):
        for microbatch in expected[stage // pipeline.stages]:
            here = {kind for kind in Kind if Action(kind, stage, microbatch) in first}
            rank_splits = any(
                a.kind in (Kind.I, Kind.W) for a in first if pipeline.rank_of[a.stage] == rank
            )
            lacking = set()
            if Kind.F not in here:
                lacking.add((Kind.F, (Kind.SEND_F, Kind.B, Kind.I)))
            if Kind.B not in here:
                if rank_splits:
                    if Kind.I not in here:
                        lacking.add((Kind.I, (Kind.SEND_B, Kind.W)))
                    if Kind.W not in here:
                        lacking.add((Kind.W, ()))
                else:
                    lacking.add((Kind.B, (Kind.SEND_B,)))
            for kind, users in lacking:
                used = [
                    first[a] for a in (Action(u, stage, microbatch) for u in users) if a in first
                ]
                where = min(used) if used else lengths[rank]
                found.add((rank, where, str(Action(kind, stage, microbatch))))

    # each action against what it needs
    comms = any(Kind.SEND_F <= s.action.kind <= Kind.RECV_B for s in spots)
    for action, position in first.items():
        kind, stage, microbatch = action[:3]
        rank = pipeline.rank_of[stage]
        me = (rank, position, str(action))
        if microbatch < 0:
            continue
        if microbatch not in expected[stage // pipeline.stages]:
            found.add(me)
            continue

        def at(kind, stage=stage, microbatch=microbatch):
            kinds = BACKWARD if kind is BACKWARD else (kind,)
            all_ = [first[a] for k in kinds if (a := Action(k, stage, microbatch)) in first]
            return min(all_) if all_ else None

        def not_before(kind, stage=stage, position=position, at=at):
            """Whether that action exists and does not come before this one."""
            there = at(kind, stage)
            return there is not None and there >= position

        if kind in (Kind.F, *BACKWARD):
            forward = kind is Kind.F
            ahead = pipeline.next(stage) if forward else pipeline.previous(stage)
            behind = pipeline.previous(stage) if forward else pipeline.next(stage)
            send, receive = (Kind.SEND_F, Kind.RECV_F) if forward else (Kind.SEND_B, Kind.RECV_B)
            if comms and pipeline.remote(stage, ahead) and at(send) is None:
                found.add((rank, position + 1, str(Action(send, stage, microbatch))))
            if comms and pipeline.remote(stage, behind) and at(receive) is None:
                found.add((rank, position, str(Action(receive, stage, microbatch))))
            local = behind is not None and not pipeline.remote(stage, behind)
            if local and not_before(Kind.F if forward else BACKWARD, behind):
                found.add(me)
            if not forward and not_before(Kind.F):
                found.add(me)
            if kind is Kind.B and (at(Kind.I) is not None or at(Kind.W) is not None):
                found.add(me)
        elif kind is Kind.W:
            if not_before(Kind.I):
                found.add(me)
        elif pipeline.other_end(action) is None:
            found.add(me)
        else:
            computes = at(Kind.F if kind in (Kind.SEND_F, Kind.RECV_F) else BACKWARD)
            if computes is not None:
                right = (
                    computes < position
                    if kind in (Kind.SEND_F, Kind.SEND_B)
                    else (position < computes)
                )
                if not right:
                    found.add(me)

    found |= _misordered(spots, pipeline)
    found |= _whole_stages(rows, pipeline, flush, expected)
    return found


def _named(spot):
    return (spot.rank, spot.position, str(spot.action))


def _microbatches(first, pipeline):
    """The microbatches of each copy: their number is what most stages count."""
    total = 0
    for copy in range(pipeline.copies):
        counts = []
        for stage in range(copy * pipeline.stages, (copy + 1) * pipeline.stages):
            mine = [a for a in first if a.stage == stage]
            forwards = {a.microbatch for a in mine if a.kind is Kind.F}
            backwards = {a.microbatch for a in mine if a.kind in BACKWARD}
            counts += [n for n in (len(forwards), len(backwards)) if n]
        if counts:
            most = max(counts.count(n) for n in counts)
            total += max(n for n in counts if counts.count(n) == most)
    total = max(total, 1)
    owned = [set() for _ in range(pipeline.copies)]
    for microbatch in range(total):
        uses = [
            len(
                {
                    (a.stage, a.kind is Kind.F)
                    for a in first
                    if a.microbatch == microbatch
                    and a.kind in (Kind.F, *BACKWARD)
                    and a.stage // pipeline.stages == copy
                }
            )
            for copy in range(pipeline.copies)
        ]
        owned[uses.index(max(uses))].add(microbatch)
    return owned


def _misordered(spots, pipeline):
    """The first receive of each pair of ranks that does not come in the order of sending."""
    sends, receives = defaultdict(list), defaultdict(list)
    for spot in spots:
        end = pipeline.other_end(spot.action)
        if end is None:
            continue
        peer = pipeline.rank_of[end.stage]
        if spot.action.kind in (Kind.SEND_F, Kind.SEND_B):
            if end not in sends[spot.rank, peer]:
                sends[spot.rank, peer].append(end)
        elif all(s.action != spot.action for s in receives[peer, spot.rank]):
            receives[peer, spot.rank].append(spot)
    found = set()
    for pair in sends:
        received = [s.action for s in receives[pair]]
        sent = [action for action in sends[pair] if action in received]
        taken = [s for s in receives[pair] if s.action in sent]
        for action, spot in zip(sent, taken, strict=True):
            if action != spot.action:
                found.add(_named(spot))
                break
    return found


def _whole_stages(rows, pipeline, flush, expected):
    found = set()
    kinds = {a.kind for row in rows for a in row}
    tails = [k for k in TAIL if k in kinds] if flush else []
    for stage, rank in enumerate(pipeline.rank_of):
        mine = [
            (position, part)
            for position, action in enumerate(rows[rank])
            for part in action.parts
            if part.stage == stage
        ]
        state = "sharded"
        ended = None
        for position, action in mine:
            me = (rank, position, str(action))
            if action.kind is Kind.UNSHARD:
                if state != "sharded":
                    found.add(me)
                state = "fetched"
            elif action.kind is Kind.RESHARD:
                if state != "used":
                    found.add(me)
                state = "sharded"
            elif action.kind in (Kind.F, Kind.B, Kind.I, Kind.W):
                if {Kind.UNSHARD, Kind.RESHARD} & kinds and state == "sharded":
                    found.add(me)
                if ended is not None:
                    found.add(me)
                if state == "fetched":
                    state = "used"
            elif action.kind in tails:
                if ended is not None and ended > action.kind:
                    found.add(me)
                ended = action.kind if ended is None else max(ended, action.kind)
        if state != "sharded":
            found.add((rank, len(rows[rank]), f"{stage}RESHARD"))
        for kind in tails:
            idle = not expected[stage // pipeline.stages]
            if not idle and all(action.kind is not kind for _, action in mine):
                found.add((rank, len(rows[rank]), f"{stage}{kind.name}"))
    return found


def blocked(rows, placement, send):
    """{(rank, position)} at which ranks wait for ever."""
    pipeline = Pipeline(placement)
    if {_named(s) for s in spots_of(rows) if pipeline.rank_of[s.action.stage] != s.rank}:
        return set()
    if any(pipeline.other_end(s.action) for s in spots_of(rows)):
        return _step_transfers(rows, pipeline, send)
    return _step_compute(rows, pipeline)


def _step_transfers(rows, pipeline, send):
    """Ranks move from group to group of posted transfers; messages are tokens."""
    queues = []
    for row in rows:
        groups = []
        before = None
        for position, action in enumerate(row):
            end = pipeline.other_end(action)
            if end is None:
                before = None
                continue
            peer = pipeline.rank_of[end.stage]
            entry = (position, action.kind in (Kind.SEND_F, Kind.SEND_B), peer)
            if send == "batched" and before == peer:
                groups[-1].append(entry)
            else:
                groups.append([entry])
            before = peer
        queues.append(groups)
    mail = Counter()  # buffered tokens from one rank to another
    moved = True
    while moved:
        moved = False
        for rank, groups in enumerate(queues):
            if not groups:
                continue
            for entry in list(groups[0]):
                _, sends, peer = entry
                if send == "buffered":
                    if sends:
                        mail[rank, peer] += 1
                    elif mail[peer, rank]:
                        mail[peer, rank] -= 1
                    else:
                        continue
                    groups[0].remove(entry)
                    moved = True
                elif queues[peer]:
                    meets = [e for e in queues[peer][0] if e[2] == rank and e[1] != sends]
                    if meets:
                        groups[0].remove(entry)
                        queues[peer][0].remove(meets[0])
                        moved = True
            for groups_ in queues:
                while groups_ and not groups_[0]:
                    groups_.pop(0)
    return {(rank, groups[0][0][0]) for rank, groups in enumerate(queues) if groups}


def _step_compute(rows, pipeline):
    done = set()
    queues = [list(enumerate(row)) for row in rows]

    def ready(action):
        kind, stage, microbatch = action[:3]
        if kind is Kind.F and pipeline.remote(stage, pipeline.previous(stage)):
            return (Kind.F, stage - 1, microbatch) in done
        if kind in BACKWARD and pipeline.remote(stage, pipeline.next(stage)):
            return any((k, stage + 1, microbatch) in done for k in BACKWARD)
        return True

    moved = True
    while moved:
        moved = False
        for queue in queues:
            if queue and all(map(ready, queue[0][1].parts)):
                done |= {part[:3] for part in queue.pop(0)[1].parts}
                moved = True
    return {(rank, queue[0][0]) for rank, queue in enumerate(queues) if queue}
