"""Findings: everything that is asked of a trace, as one answer for the command line's JSON."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low
from typing import Any

from unbubble.attribution import CLASSES, Attribution
from unbubble.plan import Plan
from unbubble.quantity import percent
from unbubble.simulate import Timeline
from unbubble.simulate.waits import Wait, waits
from unbubble.trace.advice import advice, called, recognised
from unbubble.trace.assembly import FROM_RANKS, Pipeline
from unbubble.trace.comparison import Planned, against
from unbubble.trace.costs import Usual, observed_costs, usual
from unbubble.trace.observed import NS, Observed
from unbubble.trace.reading import Trace
from unbubble.trace.stragglers import stragglers

MAX_WAITS = 1000
MAX_STRAGGLERS = 20

Json = dict[str, Any]


def findings(trace: Trace, plan: Plan | None = None) -> Json:
    """The answer for a trace; times in seconds, fractions of the step between 0 and 1.

    Of several pipelines the one that is at work for the longest speaks for the job, since the
    others wait for it at the step's end; `pipelines` has all of them, and means are over all ranks.
    """
    whole = [one.timeline for one in trace.pipelines if one.timeline is not None]
    planned = None if plan is None else Planned(plan)
    found = [
        _pipeline(one, attribution, planned, replicas=len(whole) > 1)
        for one, attribution in zip(trace.pipelines, trace.attributions, strict=True)
    ]
    slowest = max(found, key=lambda one: (one["makespan_s"] or 0, one["step_s"]))
    if len(whole) > 1:
        slowest = {**slowest, **_of_job(whole, [row for one in found for row in one["ranks"]])}
    answer = {
        "format": trace.format,
        "step": trace.step,
        "steps": list(trace.steps),
        "unit": "s",
        **slowest,
        "ranks": [row for one in found for row in one["ranks"]],
        "unknown": _merged(one["unknown"] for one in found),
        "recovered": _merged(one["recovered"] for one in found),
        "ignored": list(trace.ignored),
    }
    if len(found) > 1:
        answer["pipelines"] = found
    return answer


def _of_job(timelines: Sequence[Timeline], rows: Sequence[Json]) -> Json:
    """What is a mean over the ranks of several pipelines."""
    told = [row for row in rows if row["bubble_s"] is not None]
    ranks, makespan = sum(one.ranks for one in timelines), max(one.makespan for one in timelines)
    work = sum(sum(one.work) for one in timelines)
    shares = fractions(told)
    return {
        "step_s": max(one.in_unit(one.length) for one in timelines),
        "bubble_fraction": 1 - work / (ranks * makespan) if makespan else 0.0,
        "fractions": shares,
        "verdict": verdict(shares),
    }


def fractions(rows: Sequence[Json]) -> dict[str, float]:
    """The mean of each class over the ranks, of the step."""
    total = sum(row["total_s"] for row in rows) or 1
    return {c: sum(row[f"{c}_s"] for row in rows) / total for c in CLASSES}


def _merged(lists: Iterable[list[str]]) -> list[str]:
    return list(dict.fromkeys(text for one in lists for text in one))


def _pipeline(
    one: Pipeline, attribution: Attribution | None, planned: Planned | None, *, replicas: bool
) -> Json:
    answer: Json = {
        "pipeline_ranks": list(one.ranks),
        "schedule": None,
        "step_s": None,
        "makespan_s": None,
        "span_s": None,
        "bubble_fraction": None,
        "fractions": None,
        "gains": None,
        "predicted_s": None,
        "against_plan": None,
        "clock_uncertainty_s": None,
        "class_uncertainty_s": None,
        "clock_offsets_s": None,
        "stages": [],
        "slowest_stage": None,
        "slowest_rank": None,
        "stragglers": [],
        "transfers": [],
        "waits": [],
        "advice": [],
        "verdict": None,
        "recovered": list(one.recovered),
        "unknown": list(one.unknown),
    }
    if one.timeline is None or one.clocks is None or attribution is None:
        answer["ranks"] = _busy(one)
        answer["step_s"] = max((o.busy.total for o in one.observed), default=0) / NS
        answer["verdict"] = "cannot tell"
        answer["unknown"].append(
            "bubble, imbalance, overhead: only compute, communication and idle time can be told; "
            "waits for other ranks are in the latter two"
        )
        return answer
    timeline, clocks = one.timeline, one.clocks
    family, calls = recognised(timeline.schedule), 1
    if not family:
        family, calls = called(timeline.schedule)
    costs, times = observed_costs([timeline]), usual([timeline])
    rows = classes(one, attribution)
    shares = fractions(rows)
    seconds = timeline.in_unit
    uncertainty = clocks.uncertainty
    answer |= {
        "schedule": family or timeline.schedule.name or "custom",
        "microbatches": timeline.schedule.microbatches,
        "num_stages": timeline.schedule.num_stages,
        "step_s": seconds(timeline.length),
        "makespan_s": seconds(timeline.makespan),
        "span_s": seconds(timeline.span),
        "bubble_fraction": float(timeline.bubble_fraction),
        "ranks": rows,
        "fractions": shares,
        "gains": {k: attribution.in_unit(v) for k, v in attribution.gains._asdict().items()},
        "clock_uncertainty_s": None if uncertainty is None else uncertainty / NS,
        "class_uncertainty_s": _class_uncertainty(uncertainty),
        "clock_offsets_s": [offset / NS for offset in clocks.offsets],
        "stages": _stages(timeline, one.ranks, times),
        "slowest_stage": _slowest_stage(timeline, times),
        "slowest_rank": max(rows, key=lambda row: row["compute_s"])["rank"],
        "stragglers": _stragglers(timeline, one.ranks, times),
        "transfers": _transfers(one, timeline),
        "waits": _waits(timeline, one.ranks),
        "advice": [
            {"what": c.what, "gain_s": seconds(c.gain), "share": c.share}
            for c in advice(timeline, attribution, costs, family, replicas, calls)
        ],
        "verdict": verdict(shares),
    }
    if calls > 1:
        answer["recovered"] = [
            *answer["recovered"],
            f"{calls} calls of {family}, one behind the other, from the order of its actions",
        ]
    if FROM_RANKS in one.recovered and not family:
        answer["unknown"].append(
            "ranks: no known schedule has this order; is the trace of a last rank missing?"
        )
    if planned is not None:
        answer["against_plan"], reasons = against(planned, timeline, attribution)
        answer["predicted_s"] = answer["against_plan"].get("predicted_s")
        answer["unknown"] += reasons
    return answer


def _class_uncertainty(clocks: int | None) -> dict[str, float] | None:
    """What the clocks leave open: lengths within a rank are certain, and so are the classes made
    of them; transfers and the step's length span two clocks."""
    if clocks is None:
        return None
    spanning = ("communication", "overhead")
    return {f"{name}_s": 2 * clocks / NS if name in spanning else 0.0 for name in CLASSES}


def classes(one: Pipeline, attribution: Attribution) -> list[Json]:
    """Every rank's classes in seconds."""
    return [
        {"rank": rank}
        | {f"{name}_s": time for name, time in attribution.row_in_unit(row).items()}
        | {"idle_s": attribution.in_unit(row.total - row.compute)}
        for rank, row in zip(one.ranks, attribution.ranks, strict=True)
    ]


def _busy(one: Pipeline) -> list[Json]:
    """What is left where there is no pipeline: three classes that add up."""
    nothing = {f"{name}_s": None for name in (*CLASSES, "recompute", "optimizer")}
    return [
        {"rank": o.rank}
        | nothing
        | {
            "compute_s": o.busy.compute / NS,
            "recompute_s": _repeated(o),
            "communication_s": o.busy.communication / NS,
            "idle_s": o.busy.idle / NS,
            "total_s": o.busy.total / NS,
        }
        for o in one.observed
    ]


def _repeated(one: Observed) -> float | None:
    """A rank's recompute, where its trace has actions and tells."""
    if not (one.actions and one.recompute_told):
        return None
    return sum(seen.recompute for seen in one.actions) / NS


def _stages(timeline: Timeline, ranks: tuple[int, ...], times: list[Usual]) -> list[Json]:
    stages: dict[int, Json] = {}
    for u in times:
        row = stages.setdefault(u.stage, {"stage": u.stage, "rank": ranks[u.rank]})
        row[u.kind.name] = {
            "count": u.times,
            "median_s": timeline.in_unit(u.median),
            "least_s": timeline.in_unit(u.least),
            "most_s": timeline.in_unit(u.most),
            "compute_s": timeline.in_unit(u.parts.compute),
            "communication_s": timeline.in_unit(u.parts.communication),
            "overhead_s": timeline.in_unit(u.parts.overhead),
            "recompute_s": None if timeline.recompute is None else timeline.in_unit(u.recompute),
        }
    return [stages[s] for s in sorted(stages)]


def _slowest_stage(timeline: Timeline, times: list[Usual]) -> int | None:
    """The stage whose usual microbatch takes the longest."""
    loads: dict[int, int] = {}
    for u in times:
        loads[u.stage] = loads.get(u.stage, 0) + u.median * u.times
    return max(loads, key=lambda s: (loads[s], -s)) if loads else None


def _stragglers(timeline: Timeline, ranks: tuple[int, ...], times: list[Usual]) -> list[Json]:
    return [
        {
            "rank": ranks[one.rank],
            "action": str(one.action),
            "start_s": timeline.in_unit(one.start),
            "took_s": timeline.in_unit(one.took),
            "median_s": timeline.in_unit(one.usually),
        }
        for one in stragglers(timeline, times)[:MAX_STRAGGLERS]
    ]


def _transfers(one: Pipeline, timeline: Timeline) -> list[Json]:
    """By edge: the median time on the wire, and how long each end waited for the other."""
    assert one.clocks is not None
    offsets = one.clocks.offsets
    wire = {t.action: t.end - t.start for t in timeline.transfers}
    rows: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for source, send, destination, receive in one.pairs:
        gap = receive.posted + offsets[destination] - send.posted - offsets[source]
        rows.setdefault((source, destination), []).append(
            (wire[send.action], max(gap, 0), max(-gap, 0))
        )
    return [
        {
            "source": one.ranks[source],
            "destination": one.ranks[destination],
            "count": len(found),
            "transfer_s": timeline.in_unit(median_low(row[0] for row in found)),
            "source_wait_s": timeline.in_unit(sum(row[1] for row in found)),
            "destination_wait_s": timeline.in_unit(sum(row[2] for row in found)),
        }
        for (source, destination), found in sorted(rows.items())
    ]


def _waits(timeline: Timeline, ranks: tuple[int, ...]) -> list[Json]:
    """The longest gaps, each with what let the rank go on: an action, or its way here where that
    took the larger part of the gap."""
    ended = {e.action: e.end for r in range(timeline.ranks) for e in timeline.events(r)}

    def made(wait: Wait) -> int:
        return wait.start if wait.cause is None else ended.get(wait.cause, wait.start)

    found = sorted(waits(timeline), key=lambda w: w.start - w.end)[:MAX_WAITS]
    return [
        {
            "rank": ranks[w.rank],
            "start_s": timeline.in_unit(w.start),
            "length_s": timeline.in_unit(w.end - w.start),
            "action": str(w.action),
            "cause": None if w.cause is None else str(w.cause),
            "cause_rank": None if w.cause is None else ranks[w.cause_rank],
            "by_transfer": w.by_transfer and 2 * made(w) < w.start + w.end,
        }
        for w in found
    ]


def verdict(shares: Mapping[str, float]) -> str:
    """Whether the bubble limits the step, and what does if not."""
    named = {
        "the pipeline bubble": shares["bubble"],
        "imbalance": shares["imbalance_static"] + shares["imbalance_jitter"],
        "exposed communication": shares["communication"],
        "overhead of the runtime": shares["overhead"],
    }
    worst = max(named, key=lambda what: named[what])
    if named[worst] < 0.05:
        return f"compute-bound: it is {percent(shares['compute'], 0)} of the step"
    if worst == "the pipeline bubble":
        return f"bubble-limited: the pipeline bubble is {percent(named[worst], 0)} of the step"
    return (
        f"not bubble-limited: {worst} is {percent(named[worst], 0)} of the step, the pipeline "
        f"bubble {percent(shares['bubble'], 0)}"
    )
