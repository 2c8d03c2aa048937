"""Recorder: when every action of PyTorch's schedule runtime really ran on this rank.

The runtime enters `record_function("PP:<action>")` around each action and waits for receives in
`_wait_batch_p2p`. Both names are replaced in its module while a step is recorded, and the calls
that hand over to the model are timed, so that sends, receive posts, waits, compute and the
runtime's own code are apart for every schedule. PyTorch's own annotations hold the wait, and its
`Schedule1F1B` has none.

On a rank's thread things follow one another, so that per action

    duration = everything since the action before, the wait for inputs taken out
    start    = end − duration          (later than the end before by exactly the wait)
    overhead = duration − what the model took
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from torch.distributed.pipelining import schedules

_PREFIX = len("PP:")


class Recorder:
    """Begin, end, wait and model time of each action of one step; ns of the monotonic clock."""

    def __init__(self) -> None:
        self.action = ""
        """The action that runs, or the last that did."""
        self.begins: list[int] = []
        self.ends: list[int] = []
        self.waits: list[int] = []
        self.computes: list[int] = []
        self._wait = self._compute = 0

    def watch(self, schedule: Any) -> None:
        """Time what a schedule hands over to the model: forward, loss and backward."""
        schedule._compute_loss = self._timed(schedule._compute_loss)
        for stage in schedule._stages:
            for name in ("forward_maybe_with_nosync", "backward_maybe_with_nosync"):
                setattr(stage, name, self._timed(getattr(stage, name)))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the step that the schedule runs inside; what was recorded before is dropped."""
        for column in (self.begins, self.ends, self.waits, self.computes):
            column.clear()
        self.action = ""
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

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                self._compute += perf_counter_ns() - begin

        return timed


class _Span:
    """What the runtime enters around one action."""

    def __init__(self, recorder: Recorder, name: str):
        self.recorder = recorder
        self.name = name

    def __enter__(self) -> None:
        self.recorder.action = self.name[_PREFIX:]
        self.recorder._wait = self.recorder._compute = 0
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
        recorder.computes.append(recorder._compute)
