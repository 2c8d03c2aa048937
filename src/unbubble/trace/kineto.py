"""Kineto, the trace of PyTorch's profiler: JSON, plain or gzip, one file a rank."""

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from unbubble.errors import InputError, some
from unbubble.trace.events import Args, Event, EventFile
from unbubble.trace.marks import Mark
from unbubble.trace.names import COLLECTIVE, P2P, kernel_kind
from unbubble.trace.observed import RankSteps
from unbubble.trace.profiled import observe
from unbubble.trace.rank_trace import RankTrace
from unbubble.trace.repeats import NUMBERED_BACKWARD, NUMBERED_FORWARD
from unbubble.trace.sources import OtherKind, rank_in_name

MAX_US = 1e16
PIPELINE_WORDS = {"pp", "pipeline"}
"""Exactly one of these describes a pipeline's group; groups of several dimensions name others."""
_FILLING = {"", "mesh", "model", "parallel", "group"}
_P2P_WORDS = {"send", "recv", "isend", "irecv", "coalesced", "batch_isend_irecv"}
_OP, _MARK, _KERNEL, _LAUNCH, _FLOW = range(5)
_CATEGORIES = {
    "cpu_op": _OP,
    "Operator": _OP,
    "user_annotation": _MARK,
    "kernel": _KERNEL,
    "Kernel": _KERNEL,
    "gpu_memcpy": _KERNEL,
    "Memcpy": _KERNEL,
    "gpu_memset": _KERNEL,
    "Memset": _KERNEL,
    "cuda_runtime": _LAUNCH,
    "cuda_driver": _LAUNCH,
    "xpu_runtime": _LAUNCH,
    "xpu_driver": _LAUNCH,
    "Runtime": _LAUNCH,
    "fwdbwd": _FLOW,
    "forward_backward": _FLOW,
}
"""Categories of today's and of older profilers; others are skipped."""


def read(source: str) -> list[RankSteps]:
    """The one rank of a file, all of its steps.

    Raises InputError that names the file and what is wrong in it.
    """
    trace = load(source)
    rank = trace.rank if trace.rank is not None else rank_in_name(source)
    number = rank if rank is not None else 0
    steps = tuple(observe(trace, window, number) for window in trace.windows)
    return [RankSteps(rank=rank, source=source, steps=steps, world_size=trace.world_size)]


def load(source: str) -> RankTrace:
    """The recording in a file."""
    trace = RankTrace(source)
    kinds: dict[str, int] = {}
    file = EventFile(source)
    for block in file.blocks():
        _take(block, trace, kinds)
    _take_head(file.head, trace)
    if len(trace.processes) > 1:
        shown = some(sorted(map(str, trace.processes)))
        raise OtherKind(
            f"{source}: it holds the operations of {len(trace.processes)} processes (pid {shown}), "
            "several ranks merged into one file; give the ranks' own files"
        )
    trace.finish()
    return trace


def _take(events: Iterable[Event], trace: RankTrace, kinds: dict[str, int]) -> None:
    wanted = _CATEGORIES
    for event in events:
        category = wanted.get(event.cat)
        if category is None:
            if event.ph == "X" and not (event.cat and event.name):
                trace.left_out += 1
            continue
        ts, dur = event.ts, event.dur
        if category == _FLOW:
            if event.ph in ("s", "f") and -MAX_US < ts < MAX_US:
                trace.flows[event.ph != "s"][_hashable(event.id)] = round(ts * 1000)
            else:
                trace.left_out += 1
            continue
        if event.ph != "X" or event.tid is None or not event.name:
            trace.left_out += 1
            continue
        if not (-MAX_US < ts < MAX_US and 0 <= dur < MAX_US):
            raise InputError(
                f"{trace.source}: {event.name[:40]!r} has ts {ts:g} and dur {dur:g}; a time in µs "
                "was expected, and a dur of at least 0"
            )
        start, end = round(ts * 1000), round(ts * 1000) + round(dur * 1000)
        if category == _OP:
            args = event.args
            trace.processes.add(_hashable(event.pid))
            side = 0 if args is None or args.sequence is None else _side(args)
            thread = _hashable(event.tid)
            trace.add_op(thread, start, end, event.name, side)
            if event.name == "record_param_comms" and args is not None:
                peer = _count(args.destination if args.source is None else args.source)
                if peer is not None:
                    trace.peers.setdefault(thread, []).append((start, peer))
        elif category == _KERNEL:
            args = event.args
            collective = args.collective if args is not None else None
            if isinstance(collective, str):
                kind = P2P if collective in _P2P_WORDS else COLLECTIVE
            elif (kind := kinds.get(event.name, -1)) < 0:
                kind = kinds[event.name] = kernel_kind(event.name)
            trace.launched.append((start, end, kind, args and args.correlation))
            if kind == COLLECTIVE and args is not None and _names_ranks(args.ranks):
                trace.members[start, end] = args.ranks, _count(args.size) or 0
        elif category == _MARK:
            trace.processes.add(_hashable(event.pid))
            trace.marks.append(Mark(start, end, event.name, _hashable(event.tid)))
        elif "aunch" in event.name or "Mem" in event.name:
            correlation = event.args and event.args.correlation
            if isinstance(correlation, int):
                trace.launches[correlation] = start
                trace.launch_times.setdefault(_hashable(event.tid), array("q")).append(start)
                if "aunch" not in event.name:
                    trace.copies.add(correlation)


def _side(args: Args) -> int:
    """Whether the profiler numbers an operation as a forward's or a backward's; 0 for neither.

    Outside of any recording there is no number, or −1, or 2⁶⁴ − 1.
    """
    number, thread = args.sequence, args.forward_thread
    if not (isinstance(number, int) and isinstance(thread, int) and 0 <= number < 1 << 63):
        return 0
    return NUMBERED_BACKWARD if thread > 0 else NUMBERED_FORWARD


def _take_head(head: Mapping[str, Any], trace: RankTrace) -> None:
    """What the file says beside its events."""
    base = head.get("baseTimeNanoseconds", 0)
    if isinstance(base, bool) or not isinstance(base, int) or not 0 <= base < 1 << 62:
        raise InputError(f"{trace.source}: baseTimeNanoseconds is {base!r}; a time was expected")
    trace.base_ns = base
    host = head.get("host_name")
    trace.host = host if isinstance(host, str) else ""
    info = head.get("distributedInfo")
    if not isinstance(info, dict):
        return
    trace.rank, trace.world_size = _count(info.get("rank")), _count(info.get("world_size"))
    groups = [*_groups(info.get("pg_config"))]
    trace.pipeline_group = _pipeline_group(groups, trace.rank)
    trace.replica_group = _replica_group(groups, trace)


def _groups(listed: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The description and the ranks of every process group."""
    for group in listed if isinstance(listed, list) else []:
        ranks = group.get("ranks") if isinstance(group, dict) else None
        if isinstance(ranks, list):
            members = tuple(r for r in ranks if _count(r) is not None)
            yield str(group.get("pg_desc", "")), members


def _replica_group(
    groups: Iterable[tuple[str, tuple[int, ...]]], trace: RankTrace
) -> tuple[int, ...]:
    """The group of the rank that is neither the pipeline's nor everyone's; none if there is no
    pipeline's, or several others."""
    pipeline = tuple(sorted(trace.pipeline_group))
    mine = {tuple(sorted(ranks)) for _, ranks in groups if trace.rank in ranks}
    found = {one for one in mine if one != pipeline and 1 < len(one) != trace.world_size}
    return found.pop() if pipeline and len(found) == 1 else ()


def _pipeline_group(
    groups: Iterable[tuple[str, tuple[int, ...]]], rank: int | None
) -> tuple[int, ...]:
    """The ranks of the pipeline that `rank` is in; none where no group or several may be it."""
    found: set[tuple[int, ...]] = set()
    for description, ranks in groups:
        words = {*re.split("[^a-z]+", description.lower())} - _FILLING
        if len(words) == 1 and words <= PIPELINE_WORDS and (rank is None or rank in ranks):
            found.add(ranks)
    return found.pop() if len(found) == 1 else ()


def _names_ranks(value: Any) -> bool:
    """Whether a list of ranks, in words, has any: those without belong to different calls."""
    return isinstance(value, str) and value.strip("[] ") != ""


def _count(value: Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
    return value if good else None


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (int, str)) else repr(value)
