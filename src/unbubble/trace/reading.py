"""Reading: from paths to a Trace, whatever the format.

>>> from unbubble.trace import read
>>> read(["traces/"]).pipelines[0].timeline          # doctest: +SKIP
<Timeline measured: custom, 2 ranks, makespan 0.11 s, bubble 56.9%>
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

from unbubble.errors import InputError
from unbubble.schedule import Placement
from unbubble.trace.assembly import Pipeline, assemble
from unbubble.trace.clocks import Clocks
from unbubble.trace.layout import parse_layout
from unbubble.trace.layout import pipelines as pipelines_of
from unbubble.trace.names import NO_STAGE
from unbubble.trace.observed import Observed, RankSteps
from unbubble.trace.recording import load_recording
from unbubble.trace.slowdowns import Slowdowns, slowdowns
from unbubble.trace.sources import KNOWN, RECORDING, OtherKind, expand, format_of


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A read trace: one step of every pipeline. `steps` are the numbers to choose from."""

    format: str
    step: int
    steps: tuple[int, ...]
    pipelines: tuple[Pipeline, ...]
    ignored: tuple[str, ...] = ()
    ranks: tuple[RankSteps, ...] = ()
    layout: str | None = None
    placement: Placement | None = None

    def pipelines_of(self, step: int) -> tuple[Pipeline, ...]:
        """The pipelines of another of the steps."""
        return _assembled(self.ranks, self._steps.of(step), self.layout, self.placement)

    @cached_property
    def _steps(self) -> "_Steps":
        return _Steps(self.ranks)

    def slowdowns(self) -> Slowdowns | None:
        """What each stage, replica and operation adds, over all steps that have a timeline; None
        where no step has one (see `unbubble.trace.slowdowns`)."""
        every = [(step, self.pipelines_of(step)) for step in self.steps] if self.ranks else []
        whole = [one for one in every if all(p.timeline is not None for p in one[1])]
        return slowdowns(whole) if whole else None


Reader = Callable[[str], list[RankSteps]]


def reader_of(name: str) -> Reader:
    """The `read` of the format's module."""
    reader: Reader = import_module(f"unbubble.trace.{name}").read
    return reader


def read(
    paths: Iterable[str | Path],
    *,
    step: int | None = None,
    layout: str | None = None,
    placement: Placement | None = None,
    executor: Executor | None = None,
) -> Trace:
    """Read files, folders or patterns as one job's trace.

    `step` is the number of the step (the one of median length if not given), `layout` the parallel
    sizes (see `unbubble.trace.layout`), `placement` where a plan puts the stages. An `executor`
    reads the ranks in parallel.

    Raises InputError that names the file and what is wrong, or what was found instead of a trace.
    """
    files, exact = expand(paths)
    known, ignored = _formats(files, exact)
    sources, names = [str(path) for path, _ in known], [name for _, name in known]
    read_one = partial(_ranks_of, exact)
    answers = (executor.map if executor else map)(read_one, sources, names)
    parts: list[RankSteps] = []
    traces: dict[str, list[str]] = {}
    for source, name, answer in zip(sources, names, answers, strict=True):
        if isinstance(answer, str):
            ignored.append(answer)
        else:
            traces.setdefault(name, []).append(source)
            parts += answer
    name, sources = _only(traces, ignored)
    if name == RECORDING:
        return _recording(sources, step, ignored)
    found, notes = _whole(parts)
    if not found:
        raise InputError(f"{sources[0]}: it holds no step; {'; '.join(notes) or 'nothing else'}")
    ranks = _numbered(found)
    common = _Steps(ranks)
    number = common.median() if step is None else step
    return Trace(
        format=name,
        step=number,
        steps=tuple(common.numbers),
        pipelines=_assembled(ranks, common.of(number), layout, placement),
        ignored=(*ignored, *notes, *_absent(ranks)),
        ranks=tuple(ranks),
        layout=layout,
        placement=placement,
    )


def _ranks_of(exact: bool, source: str, name: str) -> list[RankSteps] | str:
    """The ranks of one file; or why it is left out, where it was not named by itself."""
    try:
        return [] if name == RECORDING else reader_of(name)(source)
    except OtherKind as error:
        if exact:
            raise
        return str(error)


def _only(traces: Mapping[str, list[str]], ignored: Sequence[str]) -> tuple[str, list[str]]:
    """The one format and its files, of the files by their formats."""
    if not traces:
        shown = "; ".join(ignored[:3])
        raise InputError(f"no file is a trace that is known ({KNOWN}); {shown}")
    if len(traces) > 1:
        examples = ", ".join(f"{files[0]} is {name}" for name, files in traces.items())
        raise InputError(f"these are traces of different formats: {examples}; give one kind")
    return next(iter(traces.items()))


def _assembled(
    ranks: Sequence[RankSteps],
    chosen: Sequence[Observed],
    layout: str | None,
    placement: Placement | None,
) -> tuple[Pipeline, ...]:
    groups = _groups(ranks, chosen, layout)
    return tuple(assemble(one.ranks, placement, one.expected, one.mixed) for one in groups)


def _formats(files: Sequence[Path], exact: bool) -> tuple[list[tuple[Path, str]], list[str]]:
    known, ignored = [], []
    for path in files:
        name, found = format_of(path)
        if name is not None:
            known.append((path, name))
        elif exact:
            raise InputError(f"{path}: not a trace that is known ({KNOWN}); it holds {found}")
        else:
            ignored.append(f"{path}: {found}")
    return known, ignored


def _whole(parts: list[RankSteps]) -> tuple[list[RankSteps], list[str]]:
    """Ranks whose trace is in several files in one piece, of the last run in these files; and
    what was left out."""
    notes = [note for part in parts for note in part.notes]
    if not (last := max((part.run for part in parts), default="")):
        return parts, notes
    if older := sorted({part.run for part in parts} - {last}):
        notes.append(f"earlier runs, from {older[0]} to {older[-1]}; name their files to see them")
    ranks: dict[int | None, RankSteps] = {}
    for part in parts:
        if part.run == last:
            before = ranks.get(part.rank)
            ranks[part.rank] = part if before is None else before.followed_by(part)
    return list(ranks.values()), notes


def _absent(ranks: Sequence[RankSteps]) -> list[str]:
    """The job's ranks of which there is no trace, in words."""
    world = max(rank.world_size or 0 for rank in ranks)
    absent = sorted(set(range(world)) - {rank.rank for rank in ranks})
    return [f"nothing of the ranks {_some(absent)}: no file of theirs is here"] if absent else []


def _numbered(ranks: list[RankSteps]) -> list[RankSteps]:
    """Ranks in order, numbered by their order where nothing tells their number."""
    if len(ranks) == 1 and ranks[0].rank is None:
        ranks = [replace(ranks[0], rank=0)]
    if any(rank.rank is None for rank in ranks):
        note = "ranks, from the order of the files' names"
        ranks = [_renumbered(rank, i, note) for i, rank in enumerate(ranks)]
    ranks.sort(key=lambda rank: rank.rank or 0)
    for one, other in pairwise(ranks):
        if one.rank == other.rank:
            raise InputError(
                f"rank {one.rank} is in both {one.source} and {other.source}; give one of them"
            )
    return ranks


def _renumbered(rank: RankSteps, number: int, note: str) -> RankSteps:
    steps = (replace(s, rank=number, recovered=(*s.recovered, note)) for s in rank.steps)
    return replace(rank, rank=number, steps=tuple(steps))


class _Steps:
    """The steps that all ranks have, by number; where some carry none they are numbered from 0.

    Raises InputError where a rank holds no step and where the ranks have none in common.
    """

    def __init__(self, ranks: Sequence[RankSteps]):
        self.ranks = ranks
        self.rows: list[dict[int, tuple[int, int]]] = []
        """Place and length of every step, by rank."""
        for rank in ranks:
            if not rank.steps:
                raise InputError(f"{rank.source}: it holds no step")
            self.rows.append({n: (i, t) for i, (n, t) in enumerate(rank.windows) if n is not None})
        by_order = [r for row, r in zip(self.rows, ranks, strict=True) if len(row) < len(r.steps)]
        if by_order and len({len(rank.steps) for rank in ranks}) > 1:
            for rank in by_order:
                if all(n is not None for n, _ in rank.windows):
                    raise InputError(f"{rank.source}: it has two steps of the same number")
        if by_order:
            self.rows = [dict(enumerate((i, t) for i, (_, t) in enumerate(r.windows)))
                         for r in ranks]  # fmt: skip
        self.note = ("steps, from their order",) if 0 < len(by_order) < len(ranks) else ()
        first = self.rows[0]
        self.numbers = [n for n in first if all(n in row for row in self.rows)]
        if not self.numbers:
            i = next((i for i, row in enumerate(self.rows) if not row.keys() & first.keys()), 1)
            raise InputError(
                f"the ranks have no step in common: {ranks[0].source} has {_some(first)}, "
                f"{ranks[i].source} has {_some(self.rows[i])}"
            )

    def median(self) -> int:
        """The step of median length; of two in the middle the shorter: a first step may compile."""
        lengths = [max(row[n][1] for row in self.rows) for n in self.numbers]
        return self.numbers[lengths.index(median_low(lengths))]

    def of(self, step: int) -> list[Observed]:
        """Every rank's observation of a step."""
        if not all(step in row for row in self.rows):
            raise InputError(f"--step {step}: the trace has the steps {_some(self.numbers)}")
        found = [r.steps[row[step][0]] for r, row in zip(self.ranks, self.rows, strict=True)]
        if self.note:
            return [replace(one, recovered=one.recovered + self.note) for one in found]
        return found


def _some(numbers: Iterable[int]) -> str:
    known = list(map(str, numbers))
    return ", ".join(known[:12]) + (f" … ({len(known)})" if len(known) > 12 else "")


class _Group(NamedTuple):
    """The ranks of a pipeline in order, how many it should have where that is known, and why they
    may be of several."""

    ranks: list[Observed]
    expected: int | None = None
    mixed: str = ""


def _groups(
    ranks: Sequence[RankSteps], chosen: Sequence[Observed], layout: str | None
) -> list[_Group]:
    """The pipelines."""
    by_rank = {one.rank: one for one in chosen}
    if layout is not None:
        members = pipelines_of(parse_layout(layout))
        world = sum(map(len, members))
        if beyond := [rank for rank in by_rank if rank >= world]:
            raise InputError(
                f"--layout {layout} has {world} ranks; there is a trace of rank {beyond[0]}"
            )
    elif all(one.replica is not None for one in chosen):
        replicas = sorted({one.replica for one in chosen if one.replica is not None})
        return [_Group([one for one in chosen if one.replica == r]) for r in replicas]
    elif all(one.pipeline_group for one in chosen):
        members = list(map(list, dict.fromkeys(one.pipeline_group for one in chosen)))
    elif all(seen.action.stage != NO_STAGE for one in chosen for seen in one.actions):
        return _replicas(chosen)
    else:
        return [_Group(list(chosen), ranks[0].world_size)]
    present = [[by_rank[rank] for rank in group if rank in by_rank] for group in members]
    return [_Group(here, len(group)) for here, group in zip(present, members, strict=True) if here]


def _replicas(chosen: Sequence[Observed]) -> list[_Group]:
    """Ranks that hold the same stages belong to different pipelines: the first of each to the
    first, and so on."""
    groups: list[list[Observed]] = []
    times: dict[frozenset[int], int] = {}
    for one in chosen:
        stages = frozenset(a.stage for seen in one.actions for a in seen.action.parts)
        turn = times.get(stages, 0) if stages else 0
        times[stages] = turn + 1
        if turn == len(groups):
            groups.append([])
        groups[turn].append(one)
    mixed = ""
    if len({sum(bool(one.actions) for one in group) for group in groups}) > 1:
        mixed = (
            f"{len(groups)} pipelines have the same stages and a rank of some is missing, so which "
            "ranks belong together cannot be told; --layout says it"
        )
    return [_Group(group, mixed=mixed) for group in groups]


def _recording(paths: Sequence[str], step: int | None, ignored: Sequence[str]) -> Trace:
    """A recording of our own: its ranks are in one file."""
    if len(paths) > 1:
        raise InputError(
            f"{paths[0]} and {paths[1]} are recordings of whole runs; give one of them"
        )
    timelines = load_recording(paths[0])
    if not timelines:
        raise InputError(f"{paths[0]}: the recording holds no step")
    lengths = [timeline.length for timeline in timelines]
    index = lengths.index(median_low(lengths)) if step is None else step
    if not 0 <= index < len(timelines):
        raise InputError(f"--step {step}: the recording has the steps 0 … {len(timelines) - 1}")
    timeline = timelines[index]
    ranks = tuple(range(timeline.ranks))
    clocks = Clocks(offsets=(0,) * len(ranks), uncertainty=0)
    return Trace(
        format=RECORDING,
        step=index,
        steps=tuple(range(len(timelines))),
        pipelines=(Pipeline(ranks=ranks, observed=(), timeline=timeline, clocks=clocks),),
        ignored=tuple(ignored),
    )
