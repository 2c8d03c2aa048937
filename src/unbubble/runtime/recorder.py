"""Recorder: when every action of PyTorch's schedules really ran on this rank.

The schedule runtime enters `record_function("PP:<action>")` around each action and waits for
receives in `_wait_batch_p2p`. Both names are replaced in its module while a step is recorded, and
the calls that hand over to the model are timed, so that sends, receive posts, waits, compute and
the runtime's own code are apart for every schedule. PyTorch's `ScheduleGPipe` and `Schedule1F1B`,
which annotate no action, are recorded by the methods of their stage, which names every action.

On a rank's thread things follow one another, so that per action

    duration = everything since the action before, the wait for inputs taken out, and what came
               before that wait, which the wait has hidden
    start    = end − duration          (later than the end before by exactly the wait)
    overhead = duration − what the model took
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from torch.distributed.pipelining import schedules

from unbubble.trace.observed import NOTICEABLE_NS
from unbubble.trace.recorded import Columns

_PREFIX = "PP:"
PAIR = "("
_MODEL = ("forward_maybe_with_nosync", "backward_maybe_with_nosync")
_MODEL_AND_BUILDER = (
    "forward_maybe_with_nosync",
    "backward_one_chunk",
    "backward_weight_one_chunk",
)
_TRANSFERS = {
    "get_fwd_send_ops": "SEND_F",
    "get_fwd_recv_ops": "RECV_F",
    "get_bwd_send_ops": "SEND_B",
    "get_bwd_recv_ops": "RECV_B",
}
_ABSENT = object()

Function = Callable[..., Any]


class HostClock:
    """The clock of a step whose actions are over when their calls return."""

    due = False

    def mark(self) -> int:
        return perf_counter_ns()

    def passed(self, mark: int) -> bool:
        return True

    def ns(self, mark: int) -> int:
        return mark


class Recorder:
    """End, wait and model time of each action of one step; ns of the monotonic clock."""

    def __init__(self) -> None:
        self.clock: Any = HostClock()
        self.action = ""
        """The action that runs, or the last that did."""
        self.begin = 0
        """When the first action began."""
        self.actions: list[str] = []
        self.ends: list[int] = []
        self.waits: list[int] = []
        self.computes: list[int] = []
        self._on = self._inside = False
        self._wait = self._compute = self._resumed = 0
        self._called: list[str] = []
        self._replaced: list[tuple[Any, str, Any]] = []

    def watch(self, schedule: Any) -> None:
        """Time what a schedule hands over to the model: forward, loss and backward."""
        annotated = isinstance(schedule, schedules._PipelineScheduleRuntime)
        self._replace(schedule, "_compute_loss", self._timed)
        for stage in stages_of(schedule):
            self.watch_stage(stage, annotated=annotated)

    def watch_stage(self, stage: Any, *, annotated: bool = False) -> None:
        """The same for one stage, whose actions are annotated by whoever runs them, or not."""
        for name in _MODEL if stage.dw_builder is None else _MODEL_AND_BUILDER:
            self._replace(stage, name, self._timed)
        if isinstance(stage.submod, schedules.FSDPModule):
            self._replace(stage, "perform_reduce_grad", self._timed)
        if annotated:
            return
        for name, action in _ACTIONS.items():
            self._replace(stage, name, self._acting(stage.stage_index, action))
        for name, kind in _TRANSFERS.items():
            self._replace(stage, name, self._calling(f"{stage.stage_index}{kind}"))

    def unwatch(self) -> None:
        """Put back what was replaced by `watch`."""
        while self._replaced:
            owner, name, before = self._replaced.pop()
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the step that runs inside; what was recorded before is dropped."""
        self._clear()
        original = schedules.record_function, schedules._wait_batch_p2p, schedules._batch_p2p
        annotate, wait_batch, batch = original

        def timed_wait(work: list[Any]) -> None:
            begin = perf_counter_ns()
            wait_batch(work)
            if work:  # schedules wait for no transfers, too, and that is no wait
                self._resumed = perf_counter_ns()
                self._wait += self._resumed - begin

        def named_batch(*args: Any, **kwargs: Any) -> Any:
            if not self._called:
                return batch(*args, **kwargs)
            first, *others = self._called
            self._called.clear()
            self._enter(first)
            works = batch(*args, **kwargs)
            self._leave()
            for action in others:
                self._enter(action)
                self._leave()
            return works

        schedules.record_function = lambda name, *args: _Span(self, name, annotate(name, *args))
        schedules._wait_batch_p2p, schedules._batch_p2p = timed_wait, named_batch
        self._on = True
        try:
            yield
        finally:
            self._on = False
            (schedules.record_function, schedules._wait_batch_p2p, schedules._batch_p2p) = original

    def take(self) -> tuple[list[str], Callable[[], Columns]]:
        """The recorded step's actions, and their times when the clock is past them."""
        before, times = self.begin, []
        for end, wait in zip(self.ends, self.waits, strict=True):
            times.append(end - before - wait)
            before = end
        found = Columns(self.begin, self.waits, times, self.computes)
        return self.actions, lambda: found

    def _clear(self) -> None:
        self.actions, self.ends, self.waits, self.computes, self._called = [], [], [], [], []
        self.action, self._inside = "", False

    def _enter(self, action: str) -> None:
        self.action = action
        self._inside = True
        if not self.actions:
            self._wait = self._compute = 0
            self.begin = perf_counter_ns()

    @property
    def _waited_until(self) -> int:
        """The end of what the present action has waited for, 0 if it has not: what its rank did
        before was over while it waited, and cost nothing."""
        return self._resumed if self._wait > NOTICEABLE_NS else 0

    def _leave(self) -> None:
        before = self.ends[-1] if self.ends else self.begin
        if self._waited_until and not self.action.startswith(PAIR):
            self._wait = self._resumed - before
        self.ends.append(perf_counter_ns())
        self.actions.append(self.action)
        self.waits.append(self._wait)
        self.computes.append(self._compute)
        self._wait = self._compute = 0
        self._inside = False

    def _replace(self, owner: Any, name: str, wrap: Callable[[Function], Function]) -> None:
        self._replaced.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, wrap(getattr(owner, name)))

    def _timed(self, function: Function) -> Function:
        """Its time is the model's; the loss, which comes after its forward, makes that longer."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                end = perf_counter_ns()
                if self._inside:
                    self._compute += end - begin
                elif self._on and self.ends:
                    self.ends[-1] = end
                    self.computes[-1] += end - begin
                    self._wait = 0  # a wait of before is inside the action that became longer

        return timed

    def _acting(self, stage: int, action: Callable[..., str]) -> Callable[[Function], Function]:
        """A call of it is an action."""

        def wrap(function: Function) -> Function:
            def acting(*args: Any, **kwargs: Any) -> Any:
                if not self._on:
                    return function(*args, **kwargs)
                self._enter(f"{stage}{action(*args, **kwargs)}")
                result = function(*args, **kwargs)
                self._leave()
                return result

            return acting

        return wrap

    def _calling(self, action: str) -> Callable[[Function], Function]:
        """What it returns is handed over to the network by the next call."""

        def wrap(function: Function) -> Function:
            def calling(chunk: int) -> Any:
                operations = function(chunk)
                if self._on and operations:
                    self._called.append(f"{action}{chunk}")
                return operations

            return calling

        return wrap


def stages_of(schedule: Any) -> list[Any]:
    """The stages that a schedule of PyTorch runs on this rank."""
    return list(schedule._stages) if hasattr(schedule, "_stages") else [schedule._stage]


def _backward(chunk: int, loss: Any = None, full_backward: bool = True, **_: Any) -> str:
    return f"{'B' if full_backward else 'I'}{chunk}"


_ACTIONS: dict[str, Callable[..., str]] = {
    "forward_one_chunk": lambda chunk, *_, **__: f"F{chunk}",
    "backward_one_chunk": _backward,
    "backward_weight_one_chunk": lambda chunk, *_, **__: f"W{chunk}",
    "perform_reduce_grad": lambda *_: "REDUCE_GRAD",
}


class _Span:
    """What the runtime enters around one action; other annotations pass through."""

    def __init__(self, recorder: Recorder, name: str, annotation: Any):
        self.recorder = recorder
        self.action = name[len(_PREFIX) :] if name.startswith(_PREFIX) else ""
        self.annotation = annotation

    def __enter__(self) -> None:
        if self.action:
            self.recorder._enter(self.action)
        self.annotation.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.annotation.__exit__(kind, error, trace)
        if self.action and error is None:
            self.recorder._leave()
