"""Profiled: one step of what a profiler recorded of a rank, as an observation: from the host alone
or from its device's kernels."""

from unbubble.action import COMPUTE, Action, Kind
from unbubble.trace.device import DeviceStep
from unbubble.trace.host import HostStep
from unbubble.trace.intervals import Interval, length, union
from unbubble.trace.losses import behind_forwards
from unbubble.trace.names import is_optimizer
from unbubble.trace.observed import NS, About, Doubt, HalfTransfer, Observed, Seen
from unbubble.trace.rank_trace import RankTrace, Window, starting_in
from unbubble.trace.recover import BY_LINKS, recover, within
from unbubble.trace.repeats import any_within, covers
from unbubble.trace.rounds import between_steps, learns, trained

OF_REPLICAS = "the group of the collectives at the end, the only one beside the pipeline's"
EVALUATED = (
    "the step, from calls of the schedule with backwards; evaluations beside it are left out"
)
HOLLOW = 0.02
"""The share of the step that may pass at the ends of ranges without anything running."""
LATE = 0.01
"""The share of a rank's work for which its thread may go on late after waits untold."""
BACKWARDS = (Kind.B, Kind.I, Kind.W)
RECOMPUTE = Doubt(
    About.RECOMPUTE, "forwards run again inside backwards, in whose compute their time is"
)
UNNUMBERED = Doubt(About.RECOMPUTE, "the trace has no operations of autograd that would tell it")
UNDIVIDED = Doubt(
    About.STEPS, "nothing in the trace divides it into steps, so all of it counts as one"
)
HIDDEN = Doubt(
    About.RECOMPUTE,
    "compiled backwards may run forwards again, in whose compute their time is",
)


def observe(trace: RankTrace, window: Window, rank: int) -> Observed:
    """What the rank did in one of `trace.windows`."""
    step, window = window, trained(trace, window)
    on_host = HostStep.of(trace, window)
    ranges = [(at, named) for at, named in on_host.named if named.action.kind in COMPUTE]
    learned = any_within(trace.engine, window.begin, window.end) or any(
        learns(trace, mark, named.action) for mark, named in trace.named_marks(window)
    )
    recovered = [EVALUATED] if window != step else []
    unknown: list[Doubt] = []
    if not ranges:
        ranges, reason = recover(trace, on_host)
        if ranges:
            recovered.append(BY_LINKS)
            if window.number is None and not any(is_optimizer(m.name) for m in trace.marks):
                unknown.append(UNDIVIDED)
        else:
            unknown.append(Doubt(About.ACTIONS, reason))
    actions: list[Seen]
    head: list[Seen] = []
    tail: list[Seen]
    halves: list[HalfTransfer]
    sends: list[HalfTransfer]
    receives: list[HalfTransfer]
    if trace.left_out and ranges:
        unknown.append(
            Doubt(
                About.EVENTS,
                f"{trace.left_out} are left out, for want of a name, category, phase or thread",
            )
        )
    if trace.unnamed:
        unknown.append(
            Doubt(
                About.KERNELS,
                f"{trace.unnamed} have no name, so communication among them counts as compute",
            )
        )
    behind = list(behind_forwards(on_host, ranges, trace.linked))
    outside = length(union(behind))
    if trace.launched:
        on_device = DeviceStep(trace, window)
        actions, idle = on_device.actions(ranges)
        outside = length(
            union((k.start, k.end) for at in behind for k in on_device.launched_in(at))
        )
        if idle:
            unknown.append(
                Doubt(About.ACTIONS, f"{len(idle)} ranges launched no kernel, as {idle[0]}")
            )
        halves, sends, receives, reason = on_device.halves()
        if reason:
            unknown.append(Doubt(About.TRANSFERS, f"{reason} cannot be told"))
        if ranges:
            unknown += on_device.gaps(ranges)
        head, gathered = on_device.head(actions)
        if gathered > (window.end - window.begin) * HOLLOW:
            unknown.append(
                Doubt(
                    About.ACTIONS,
                    f"for {gathered / NS:.3g} s parameters were gathered between them and nothing "
                    "ran; it counts as overhead",
                )
            )
        tail = on_device.tail(max((at[1] for at, _ in ranges), default=window.end))
    else:
        actions = [
            seen._replace(recompute=trace.repeats.length(seen.start, seen.end))
            for seen in on_host.actions(ranges)
        ]
        work = sum(seen.end - seen.start for seen in actions)
        if on_host.hollow > (window.end - window.begin) * HOLLOW:
            unknown.append(
                Doubt(
                    About.ACTIONS,
                    f"nothing ran for {on_host.hollow / NS:.3g} s at their ends, and it is "
                    "not in their compute",
                )
            )
        if on_host.late > work * LATE:
            unknown.append(
                Doubt(
                    About.ACTIONS,
                    f"for {on_host.late / NS:.3g} s their input was there and nothing ran yet, "
                    "longer than usual; half of it counts as waiting, half as the rank's own work",
                )
            )
        halves, sends, receives = on_host.halves()
        tail = on_host.tail(
            max((seen.end for seen in actions), default=window.end), trace.replica_group
        )
        if any(seen.group for seen in tail):
            recovered.append(OF_REPLICAS)
    if outside > (window.end - window.begin) * HOLLOW:
        unknown.append(
            Doubt(
                About.ACTIONS,
                f"for {outside / NS:.3g} s forwards went on behind their ranges, as a loss "
                "does; it is in no action and counts as overhead",
            )
        )
    if any(seen.action.kind is Kind.REDUCE_GRAD and not seen.group for seen in tail):
        unknown.append(Doubt(About.TAIL, "whom its collectives waited for, which is in their time"))
    looked_at = (
        [(at, named.action) for at, named in ranges]
        if trace.launched
        else [((seen.start, seen.end), seen.action) for seen in actions]
    )
    doubts = dict.fromkeys(filter(None, (_untold(trace, *one) for one in looked_at)))
    unknown += doubts
    base = trace.base_ns
    begin, finish = trace.span(window)
    return Observed(
        rank=rank,
        source=trace.source,
        step=window.number,
        begin=begin + base,
        finish=finish + base,
        busy=trace.busy(window),
        host=trace.host,
        actions=tuple(_moved(seen, base) for seen in actions),
        head=tuple(_moved(seen, base) for seen in head),
        tail=tuple(_moved(seen, base) for seen in tail),
        halves=tuple(_moved_half(half, base) for half in halves),
        sends=tuple(_moved_half(half, base) for half in sends),
        receives=tuple(_moved_half(half, base) for half in receives),
        recovered=tuple(recovered),
        unknown=tuple(unknown),
        recompute_told=not doubts,
        learned=learned,
        renewed=any(
            between_steps(ranges, (mark.start, mark.end))
            for mark in starting_in(trace.marks, window)
            if is_optimizer(mark.name)
        ),
        pipeline_group=trace.pipeline_group,
    )


def _untold(trace: RankTrace, interval: Interval, action: Action) -> Doubt | None:
    """Why an action's recompute cannot be told; None if it can."""
    if all(part.kind not in BACKWARDS for part in action.parts):
        return None
    low, high = interval
    repeats = trace.repeats
    if not trace.numbered:
        return None if repeats.merged else UNNUMBERED
    if any_within(repeats.hidden, low, high):
        return HIDDEN
    if any_within(repeats.doubtful, low, high):
        return RECOMPUTE
    if not any_within(trace.engine, low, high) and trace.works(low, high):
        return UNNUMBERED
    linked = within(trace.linked, low, high) if len(action.parts) == 1 else []
    if not all(covers(repeats.merged, time) for time in linked):
        return RECOMPUTE
    return None


def _moved(seen: Seen, base: int) -> Seen:
    return seen._replace(start=seen.start + base, end=seen.end + base)


def _moved_half(half: HalfTransfer, base: int) -> HalfTransfer:
    called, posted, done = half.called + base, half.posted + base, half.done + base
    return half._replace(called=called, posted=posted, done=done)
