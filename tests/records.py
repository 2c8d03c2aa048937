"""Live records of a small step of two ranks, or of a simulated one, as files: material for the
tests."""

from unbubble.action import JOINED
from unbubble.trace.live import Order, Run, Step, encode

ORDERS = [
    ["0F0", "0SEND_F0", "0F1", "0SEND_F1", "0RECV_B0", "0B0", "0RECV_B1", "0B1", "0REDUCE_GRAD"],
    ["1RECV_F0", "1F0", "1B0", "1SEND_B0", "1RECV_F1", "1F1", "1B1", "1SEND_B1"],
]
# of each action: wait, time, the model's part of it
TIMES = [
    [(0, 10, 9), (0, 1, 0), (0, 10, 9), (0, 1, 0), (0, 1, 0), (130_000, 20, 19), (0, 1, 0),
     (60_000, 20, 18), (0, 2, 0)],
    [(0, 1, 0), (80_000, 12, 11), (0, 24, 23), (0, 1, 0), (0, 1, 0), (0, 12, 11), (0, 24, 22),
     (0, 1, 0)],
]  # fmt: skip


def lines(rank, steps, *, run="a", clock=0):
    """A rank's records of the numbered steps."""
    waits, times, own = map(list, zip(*TIMES[rank], strict=True))
    begin = clock + (0 if rank == 0 else 5)
    finish = begin + sum(waits) + sum(times)
    found = [
        Run(run=run, rank=rank + 4, world_size=8, pipeline_ranks=[4, 5], host="here", epoch_ns=0),
        Order(order=3, actions=ORDERS[rank]),
    ]
    for step in steps:
        at = 10**7 * step
        optimizer = (finish + at + 10, finish + at + 30)
        one = Step(step=step, order=3, begin=begin + at, finish=finish + at + 40,
                   waits=waits, times=times, own=own, optimizer=optimizer)  # fmt: skip
        found.append(one)
    return list(map(encode, found))


def write(folder, rank, found, name="a-rank{}-0.live.jsonl"):
    """Write lines as one file of the rank."""
    (folder / name.format(rank)).write_bytes(b"".join(found))


def write_simulated(folder, timeline):
    """A file a rank of a simulated step with its sends and receives, which has no tail."""
    for rank, codes in enumerate(timeline.schedule.codes):
        names, waits, times, own, at = [], [], [], [], timeline.begin
        around = [o for o, c in zip(timeline.overhead[rank], codes, strict=True) if not c & JOINED]
        for event, overhead in zip(timeline.events(rank), around, strict=True):
            names.append(str(event.action))
            waits.append(event.start - at)
            times.append(event.end - event.start)
            own.append(times[-1] - overhead if event.action.is_compute else 0)
            at = event.end
        ranks = list(range(timeline.ranks))
        found = [
            Run(run="a", rank=rank, world_size=len(ranks), pipeline_ranks=ranks, host="here",
                epoch_ns=0),
            Order(order=0, actions=names),
            Step(step=0, order=0, begin=timeline.begin, finish=timeline.finish, waits=waits,
                 times=times, own=own),
        ]  # fmt: skip
        write(folder, rank, map(encode, found))
