"""Loads: what one microbatch costs every rank, the communication that nothing hides included.

The first-order step, (m+p−1) × the slowest load, and the imbalance factor are made of them. Exposed
communication of one microbatch is what holds its rank, whatever the order of actions:

- communication inside an action: part of the action's time;
- posting sends and receives: the rank's own time, where the order has sends and receives;
- a transfer between ranks: its time on the wire, at both its ends, where transfers hold the ranks
  (`overlap = false`).

A transfer beside compute holds no rank and is in no load: what it delays depends on the order,
which only the simulation knows. So does every wait for the other end of a transfer.
"""

from collections import Counter
from fractions import Fraction

from unbubble.action import KIND_AND_STAGE, KIND_MASK, SENDS, STAGE_SHIFT, TRANSFER, Kind
from unbubble.costs import Costs
from unbubble.simulate.timeline import Timeline


def rank_loads(timeline: Timeline, costs: Costs) -> tuple[Fraction, ...]:
    """F + B + exposed communication of one microbatch on every rank of a simulated step, in ticks:
    the mean over the microbatches and the sum over the rank's stages."""
    microbatches = timeline.schedule.microbatches
    if not timeline.schedule.with_comms:
        return tuple(Fraction(work, microbatches) for work in timeline.work)
    return tuple(
        Fraction(work + _communication(timeline, costs, rank), microbatches)
        for rank, work in enumerate(timeline.work)
    )


def _communication(timeline: Timeline, costs: Costs, rank: int) -> int:
    """Ticks in which sends and receives hold the rank, in the whole step."""
    schedule, spent = timeline.schedule, 0
    for key, count in Counter(map(KIND_AND_STAGE.__and__, schedule.codes[rank])).items():
        kind, stage = Kind(key & KIND_MASK), key >> STAGE_SHIFT
        if kind not in TRANSFER:
            continue
        sends, up = kind in SENDS, kind in (Kind.SEND_F, Kind.RECV_B)
        each = costs.send_host if sends else costs.recv_host
        if not costs.overlap:
            placement = schedule.placement
            other = (placement.next_rank if up else placement.previous_rank)[stage]
            ends = (rank, other) if sends else (other, rank)
            # a gradient has the size of the activation that it belongs to
            lower = costs.stages[(stage if up else stage - 1) % costs.num_stages]
            each += costs.edge_between(*ends).transfer(lower.output_bytes)
        spent += count * each
    return spent
