"""Recorder: when every action of PyTorch's schedule runtime really ran on this rank.

The runtime enters `record_function("PP:<action>")` around each action, and waits for receives in
`_wait_batch_p2p`. Both names are replaced in its module while a step is recorded, so that sends,
receive posts, waits and compute are apart for every schedule; its own `Schedule1F1B` annotates
nothing, and its annotations hold the wait.

On a rank's thread things follow one another, so that per action

    duration = everything since the action before, the wait for inputs taken out
    start    = end − duration          (later than the end before by exactly the wait)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from torch.distributed.pipelining import schedules

_PREFIX = len("PP:")


class Recorder:
    """Begin, end and wait of each action of one step, in ns of the machine's monotonic clock."""

    def __init__(self) -> None:
        self.actions: list[str] = []
        self.begins: list[int] = []
        self.ends: list[int] = []
        self.waits: list[int] = []
        self._wait = 0

    def clear(self) -> None:
        for column in (self.actions, self.begins, self.ends, self.waits):
            column.clear()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record whatever the schedule runtime does inside."""
        original = schedules.record_function, schedules._wait_batch_p2p
        wait_batch = original[1]

        def timed_wait(work: list[Any]) -> None:
            begin = perf_counter_ns()
            wait_batch(work)
            self._wait += perf_counter_ns() - begin

        schedules.record_function = lambda name: _Span(self, name)
        schedules._wait_batch_p2p = timed_wait
        try:
            yield
        finally:
            schedules.record_function, schedules._wait_batch_p2p = original


class _Span:
    def __init__(self, recorder: Recorder, name: str):
        self.recorder = recorder
        self.name = name

    def __enter__(self) -> None:
        self.recorder._wait = 0
        self.recorder.begins.append(perf_counter_ns())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recorder = self.recorder
        recorder.ends.append(perf_counter_ns())
        recorder.waits.append(recorder._wait)
        recorder.actions.append(self.name[_PREFIX:])
