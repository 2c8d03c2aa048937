"""Kineto, the trace of PyTorch's profiler: a file's steps as Observed, on host or device."""

from collections.abc import Sequence

from unbubble.action import COMPUTE, Action, Kind
from unbubble.trace.device import DeviceStep
from unbubble.trace.host import HostStep
from unbubble.trace.intervals import Interval
from unbubble.trace.kineto_file import KinetoTrace, Window
from unbubble.trace.names import Named
from unbubble.trace.observed import HalfTransfer, Observed, RankSteps, Seen
from unbubble.trace.recover import recover
from unbubble.trace.sources import rank_in_name

PIPELINE_WORDS = ("pp", "pipeline")


def read(source: str) -> list[RankSteps]:
    """The one rank of a file, all of its steps."""
    trace = KinetoTrace(source)
    rank = trace.rank if trace.rank is not None else rank_in_name(source)
    number = rank if rank is not None else 0
    steps = tuple(observe(trace, window, number) for window in trace.windows)
    return [RankSteps(rank=rank, source=source, steps=steps, world_size=trace.world_size)]


def observe(trace: KinetoTrace, window: Window, rank: int) -> Observed:
    """What the rank did in one of `trace.windows`."""
    on_host = HostStep.of(trace, window)
    ranges = [(at, named) for at, named in on_host.named if named.action.kind in COMPUTE]
    recovered, unknown = [], []
    if not ranges:
        ranges, reason = recover(trace, on_host)
        if ranges:
            recovered.append("actions, from autograd's links of forward and backward operations")
        else:
            unknown.append(f"actions: {reason}")
    actions: list[Seen]
    tail: list[Seen]
    halves: list[HalfTransfer]
    sends: list[HalfTransfer]
    receives: list[HalfTransfer]
    if trace.kernels:
        on_device = DeviceStep(trace, window)
        actions, idle = on_device.actions(ranges)
        if idle:
            unknown.append(f"actions: {len(idle)} ranges launched no kernel, as {idle[0]}")
        halves, sends, receives, reason = on_device.halves()
        if reason:
            unknown.append(f"transfers: {reason} cannot be told")
        tail = on_device.tail(max((at[1] for at, _ in ranges), default=window.end))
    else:
        actions = on_host.actions(ranges)
        halves, sends, receives = on_host.halves()
        tail = on_host.tail()
    actions = _split_backwards(actions, ranges)
    base = trace.base_ns
    return Observed(
        rank=rank,
        source=trace.source,
        step=window.number,
        begin=window.begin + base,
        finish=window.end + base,
        busy=trace.busy(window),
        host=trace.host_name,
        actions=tuple(_moved(seen, base) for seen in actions),
        tail=tuple(_moved(seen, base) for seen in tail),
        halves=tuple(_moved_half(half, base) for half in halves),
        sends=tuple(_moved_half(half, base) for half in sends),
        receives=tuple(_moved_half(half, base) for half in receives),
        recovered=tuple(recovered),
        unknown=tuple(unknown),
        pipeline_group=pipeline_group(trace),
    )


def pipeline_group(trace: KinetoTrace) -> tuple[int, ...]:
    """The ranks of the process group that calls itself the pipeline's."""
    info = trace.head.get("distributedInfo")
    groups = info.get("pg_config") if isinstance(info, dict) else None
    for group in groups if isinstance(groups, list) else []:
        if not isinstance(group, dict):
            continue
        words = str(group.get("pg_desc", "")).lower().replace("mesh_", "").split("_")
        ranks = group.get("ranks")
        if any(word in words for word in PIPELINE_WORDS) and isinstance(ranks, list):
            return tuple(r for r in ranks if isinstance(r, int))
    return ()


def _split_backwards(actions: list[Seen], ranges: Sequence[tuple[Interval, Named]]) -> list[Seen]:
    """A stage's method `backward_one_chunk` is an I where weights have a method of their own."""
    split = any(named.tight and named.action.kind is Kind.W for _, named in ranges)
    if not split:
        return actions
    return [
        seen._replace(action=Action(Kind.I, seen.action.stage, seen.action.microbatch))
        if seen.action.kind is Kind.B
        else seen
        for seen in actions
    ]


def _moved(seen: Seen, base: int) -> Seen:
    return seen._replace(start=seen.start + base, end=seen.end + base)


def _moved_half(half: HalfTransfer, base: int) -> HalfTransfer:
    called, posted, done = half.called + base, half.posted + base, half.done + base
    return half._replace(called=called, posted=posted, done=done)
