"""The ladder of the five classes, rung by rung in Fractions, on the slow simulator."""

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

from tests.oracle.simulator import simulate

from unbubble.action import Kind
from unbubble.schedule import Schedule

WORK = (Kind.F, Kind.B, Kind.I, Kind.W, Kind.OVERLAP_F_B, Kind.OPTIMIZER)
TRANSFERS = (Kind.SEND_F, Kind.RECV_F, Kind.SEND_B, Kind.RECV_B)


def ladder(timeline, costs):
    """T1, T2, T3, T4 and T of a timeline with a flush."""
    schedule = timeline.schedule
    rows = [list(schedule.actions(rank)) for rank in range(schedule.ranks)]
    compute, inside, kind_of = {}, {}, {}
    clips = defaultdict(list)
    for rank, row in enumerate(rows):
        at = 0
        for number, action in enumerate(row):
            at += len(action.codes)
            i, key = at - 1, (rank, number)
            start, end = timeline.starts[rank][i], timeline.ends[rank][i]
            parts = [x[rank][i] if x else 0 for x in (timeline.communication, timeline.overhead)]
            kind_of[key] = action.kind
            compute[key] = inside[key] = Fraction(0)
            if action.kind in WORK:
                compute[key], inside[key] = Fraction(end - start - sum(parts)), parts[0]
            elif action.kind not in TRANSFERS:
                inside[key] = end - start - parts[1]
            if action.kind is Kind.CLIP:
                number_of_clip = [a.kind for a in row[:number]].count(Kind.CLIP)
                clips[number_of_clip].append((key, start, end))
    for group in clips.values():
        latest = max(start for _, start, _ in group)
        for key, _, end in group:
            inside[key] = max(end - latest, 0)
    work = [sum(t for (r, _), t in compute.items() if r == rank) for rank in range(len(rows))]
    mean_work = sum(work) / len(work)
    means = {}
    for key, time in compute.items():
        same = [t for k, t in compute.items() if k[0] == key[0] and kind_of[k] is kind_of[key]]
        means[key] = sum(same) / len(same) if time or any(same) else Fraction(0)
    ideal = {}
    for key, mean in means.items():
        if work[key[0]]:
            ideal[key] = mean * mean_work / work[key[0]]
        else:
            counted = [k for k in compute if k[0] == key[0] and kind_of[k] in WORK]
            ideal[key] = mean_work / len(counted) if key in counted else Fraction(0)
    bare_rows = [[a for a in row if a.kind not in TRANSFERS] for row in rows]
    bare = Schedule.of(bare_rows, schedule.placement)
    alone = replace(costs, overlap=True, channel="unlimited")

    def length(order, costs, times, wires):
        ends, _ = simulate(order, costs, times, wires)
        return max(end for _, end in ends.values())

    def rung(times):
        left = {}
        for rank, row in enumerate(rows):
            kept = [i for i, a in enumerate(row) if a.kind not in TRANSFERS]
            left |= {(rank, n): times[rank, i] for n, i in enumerate(kept)}
        return length(bare, alone, left, {})

    wires = {t.action[:3]: Fraction(t.end - t.start) for t in timeline.transfers}
    both = {key: compute[key] + inside[key] for key in compute}
    return (
        rung(ideal),
        rung(means),
        rung(compute),
        length(schedule, costs, both, wires),
        timeline.finish - timeline.begin,
    )
