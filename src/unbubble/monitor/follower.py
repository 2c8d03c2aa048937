"""Follower: the live records of a running job as they come, joined to the steps that are complete.

A step of a pipeline is complete when the files of all of its ranks hold it. Of several runs in a
folder only the last is followed; a new one takes over by itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from unbubble.errors import InputError
from unbubble.trace.assembly import Pipeline, assemble
from unbubble.trace.live import CHUNK_BYTES, SUFFIX, Segment, Written

MOST_WAITING = 10_000
"""Steps of one pipeline that may wait for a rank which is behind; older ones are given up."""


@dataclass(frozen=True)
class Ready:
    """A step that is complete: what each rank of its pipeline wrote of it, in their order."""

    step: int
    written: tuple[Written, ...]

    @property
    def run(self) -> str:
        return self.written[0].run.run

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(one.run.rank for one in self.written)

    @property
    def begun_s(self) -> float:
        """When its first rank began, in Unix time."""
        return min(one.run.epoch_ns + one.header.begin for one in self.written) / 1e9

    def pipeline(self) -> Pipeline:
        """Raises InputError where a record contradicts itself."""
        observed = [one.observed() for one in self.written]
        return assemble(observed, expected=len(observed))


class Follower:
    """Reads what was added to the files of the folders since it last looked."""

    def __init__(self, folders: Iterable[str | Path]):
        self.folders = [Path(folder) for folder in folders]
        for folder in self.folders:
            if not folder.is_dir():
                raise InputError(f"{folder}: no such folder; a job's live records were expected")
        self.run = ""
        self.last_step: dict[int, int] = {}
        """The last step that each rank wrote."""
        self.given_up = 0
        """Steps that will never be complete."""
        self._segments: dict[Path, Segment] = {}
        self._offsets: dict[Path, int] = {}
        self._waiting: dict[tuple[int, ...], dict[int, dict[int, Written]]] = {}

    @property
    def pipelines(self) -> int:
        """How many pipelines the run has, as far as is known."""
        return len(self._waiting)

    @property
    def notes(self) -> list[str]:
        """What could not be read; the end of a file that is still written is not among it."""
        segments = self._segments.values()
        return [f"{s.source}: {s.damaged} damaged records" for s in segments if s.damaged]

    @property
    def silent(self) -> list[int]:
        """Ranks of a pipeline of which some rank has written steps, and that wrote none."""
        return sorted({r for ranks in self._waiting for r in ranks} - self.last_step.keys())

    def poll(self) -> list[Ready]:
        """The steps that have become complete, each pipeline's in order."""
        present = [p for folder in self.folders for p in sorted(folder.glob(f"*{SUFFIX}"))]
        for gone in self._segments.keys() - set(present):
            del self._segments[gone], self._offsets[gone]
        for path in present:
            for written in self._news(path):
                self._take(written)
        return [ready for ranks in sorted(self._waiting) for ready in self._ready(ranks)]

    def _news(self, path: Path) -> Iterable[Written]:
        segment = self._segments.setdefault(path, Segment(str(path)))
        if segment.run is not None and segment.run.run < self.run:
            return
        try:
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                while data := file.read(CHUNK_BYTES):
                    self._offsets[path] = file.tell()
                    yield from segment.feed(data)
        except FileNotFoundError:  # its turn to go came while we looked
            return

    def _take(self, written: Written) -> None:
        run, step = written.run, written.header.step
        if run.run < self.run:
            return
        if run.run > self.run:
            self.run = run.run
            self.last_step.clear()
            self._waiting.clear()
        self.last_step[run.rank] = max(step, self.last_step.get(run.rank, step))
        steps = self._waiting.setdefault(tuple(run.pipeline_ranks), {})
        steps.setdefault(step, {})[run.rank] = written
        if len(steps) > MOST_WAITING:
            del steps[min(steps)]
            self.given_up += 1

    def _ready(self, ranks: tuple[int, ...]) -> Iterable[Ready]:
        steps = self._waiting[ranks]
        complete = sorted(step for step, by_rank in steps.items() if set(by_rank) == set(ranks))
        for step in complete:
            yield Ready(step, tuple(steps[step][rank] for rank in ranks))
        # every rank writes its steps in order: what is older and not complete stays so
        older = [step for step in steps if complete and step <= complete[-1]]
        self.given_up += len(older) - len(complete)
        for step in older:
            del steps[step]
