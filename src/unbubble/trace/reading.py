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
from pathlib import Path
from statistics import median_low

from unbubble.attribution import Attribution, attribute_together
from unbubble.errors import InputError, some
from unbubble.schedule import Placement
from unbubble.trace.assembly import Pipeline, assemble
from unbubble.trace.calls import without_late_members
from unbubble.trace.clocks import Clocks
from unbubble.trace.groups import groups, in_stage_order
from unbubble.trace.layout import parse_layout
from unbubble.trace.observed import Observed, RankSteps
from unbubble.trace.recording import load_recording
from unbubble.trace.slowdowns import Slowdowns, slowdowns
from unbubble.trace.sources import KNOWN, RECORDING, OtherKind, expand, format_of
from unbubble.trace.steps import Steps


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
    def attributions(self) -> tuple[Attribution | None, ...]:
        """The classes of every pipeline that has a timeline; they wait for each other."""
        timelines = [one.timeline for one in self.pipelines if one.timeline is not None]
        found = iter(attribute_together(timelines) if timelines else ())
        return tuple(None if one.timeline is None else next(found) for one in self.pipelines)

    @cached_property
    def _steps(self) -> Steps:
        return Steps(self.ranks)

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
    if layout is not None:
        parse_layout(layout)
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
    ranks = _numbered(found, sources)
    common = Steps(ranks)
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
    found = groups(ranks, without_late_members(chosen), layout)
    return tuple(
        assemble(in_stage_order(one.ranks, placement), placement, one.expected, one.mixed)
        for one in found
    )


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
    return [f"the ranks {some(absent)}, of which no file is here"] if absent else []


def _numbered(ranks: list[RankSteps], files: Sequence[str]) -> list[RankSteps]:
    """Ranks in order, numbered by their order where nothing tells their number."""
    if len(ranks) == 1 and ranks[0].rank is None:
        ranks = [replace(ranks[0], rank=0)]
    if any(rank.rank is None for rank in ranks):
        note = ("ranks, from the order of the files' names",) if len(files) > 1 else ()
        ranks = [_renumbered(rank, i, note) for i, rank in enumerate(ranks)]
    by_rank: dict[int, RankSteps] = {}
    for rank in ranks:
        number = rank.rank or 0
        by_rank[number] = _one_after_another(by_rank[number], rank) if number in by_rank else rank
    return [by_rank[number] for number in sorted(by_rank)]


def _one_after_another(one: RankSteps, other: RankSteps) -> RankSteps:
    """A rank of which two files hold different steps, as a profiler that is told to repeat writes
    them."""
    numbers, others = ({number for number, _ in rank.windows} for rank in (one, other))
    if None in numbers | others or numbers & others:
        raise InputError(
            f"rank {one.rank} is in both {one.source} and {other.source}; give one of them"
        )
    steps = sorted((*one.steps, *other.steps), key=lambda step: step.step or 0)
    return replace(one, steps=tuple(steps))


def _renumbered(rank: RankSteps, number: int, note: tuple[str, ...]) -> RankSteps:
    steps = (replace(s, rank=number, recovered=s.recovered + note) for s in rank.steps)
    return replace(rank, rank=number, steps=tuple(steps))


def _recording(paths: Sequence[str], step: int | None, ignored: Sequence[str]) -> Trace:
    """A recording of our own: its ranks are in one file."""
    if len(paths) > 1:
        raise InputError(
            f"{paths[0]} and {paths[1]} are recordings of whole runs; give one of them"
        )
    recording = load_recording(paths[0])
    timelines = recording.steps
    if not timelines:
        raise InputError(f"{paths[0]}: the recording holds no step")
    lengths = [timeline.length for timeline in timelines]
    index = lengths.index(median_low(lengths)) if step is None else step
    if not 0 <= index < len(timelines):
        raise InputError(f"--step {step}: the recording has the steps 0 … {len(timelines) - 1}")
    timeline = timelines[index]
    ranks = tuple(range(timeline.ranks))
    pipeline = Pipeline(
        ranks=ranks,
        observed=(),
        timeline=timeline,
        clocks=Clocks(offsets=(0,) * len(ranks), uncertainty=recording.clock_uncertainty_ns),
        recovered=recording.recovered,
        unknown=recording.unknown,
    )
    return Trace(
        format=RECORDING,
        step=index,
        steps=tuple(range(len(timelines))),
        pipelines=(pipeline,),
        ignored=tuple(ignored),
    )
