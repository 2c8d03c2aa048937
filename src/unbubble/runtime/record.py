"""Record: the steps of a training loop of one's own, written as they happen.

    with unbubble.record(schedule, optimizer, folder="steps"):
        for inputs, targets in data:
            schedule.step(inputs, target=targets)
            optimizer.step()
            optimizer.zero_grad()

Every rank does so. `unbubble trace steps` says where a step went, `unbubble watch steps` follows.
"""

import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter_ns, time_ns
from types import TracebackType
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed.pipelining.schedules import _PipelineSchedule
from torch.distributed.pipelining.stage import _PipelineStageBase

from unbubble.errors import InputError
from unbubble.runtime.device import DeviceClock, DeviceRecorder
from unbubble.runtime.recorder import Recorder, stages_of
from unbubble.runtime.segments import Segments, later_run
from unbubble.trace.live import Run, Step
from unbubble.trace.recorded import Columns

MOST_TAKEN = 16
"""Steps that may be waiting for the device to be past them."""
_numbers = count()


class record:  # noqa: N801  # a context manager, named as it reads in a loop
    """Record every training step of a pipeline on this rank, while the block runs.

    `watched` are a schedule of torch.distributed.pipelining, or the stages that a loop of one's own
    runs (then each step is a `with recorder.step():`), and the optimizers, whose time then belongs
    to the step. All ranks of the job give the same shared `folder`, or each its own.

    A step is in the files when its optimizer returns; on an accelerator when the device is past it,
    a step or two later. `first_step` numbers the first step (a resumed job's is not 0). `keep`
    files of about `max_bytes` stay for each rank. Raises InputError for what cannot be watched,
    OSError where the folder cannot be written.
    """

    def __init__(
        self,
        *watched: Any,
        folder: str | Path,
        first_step: int = 0,
        max_bytes: int = 8 << 20,
        keep: int = 4,
    ):
        self.next_step = first_step
        self._schedules: list[Any] = []
        self._stages: list[Any] = []
        self._optimizers: list[Any] = []
        for one in watched:
            self._place(one).append(one)
        stages = self._stages + [s for schedule in self._schedules for s in stages_of(schedule)]
        if not stages:
            raise InputError("record needs the pipeline's schedule, or its stages; none was given")
        run = _run(stages[0].group, folder)
        self._segments = Segments(folder, run, max_bytes=max_bytes, keep=keep)
        self._recorder = recorder_of(torch.device(stages[0].device))
        self._present: _Taken | None = None
        self._taken: deque[_Taken] = deque()
        self._waiting: set[int] = set()
        self._undo: list[Callable[[], None]] = []

    def _place(self, one: Any) -> list[Any]:
        if isinstance(one, _PipelineSchedule):
            return self._schedules
        if isinstance(one, _PipelineStageBase):
            return self._stages
        if isinstance(one, torch.optim.Optimizer):
            return self._optimizers
        raise InputError(
            f"record cannot watch a {type(one).__name__}; give a schedule or stages of "
            "torch.distributed.pipelining, and optimizers"
        )

    def __enter__(self) -> "record":
        for schedule in self._schedules:
            self._recorder.watch(schedule)
            schedule.step = self._stepping(schedule, schedule.step)
            self._undo.append(partial(delattr, schedule, "step"))
        for stage in self._stages:
            self._recorder.watch_stage(stage)
        for optimizer in self._optimizers:
            for hook in (
                optimizer.register_step_pre_hook(self._optimizer_begins),
                optimizer.register_step_post_hook(self._optimizer_ends),
            ):
                self._undo.append(hook.remove)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._over()
            self._write(everything=True)
        except RuntimeError:
            if error is None:  # else the device has failed, and the loop's own error says why
                raise
        finally:
            while self._undo:
                self._undo.pop()()
            self._recorder.unwatch()
            self._segments.close()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Everything of one step but the optimizer; a watched schedule calls it by itself."""
        self._over()
        recorder, clock = self._recorder, self._recorder.clock
        if clock.due:
            self._write(everything=True)
            clock.meet()
        number = self.next_step
        self.next_step += 1  # also where the step fails: other ranks may have run it
        with recorder.recording():
            yield
        actions, columns = recorder.take()
        if not actions:
            return
        self._present = _Taken(number, actions, columns, clock.mark())
        self._waiting = {id(optimizer) for optimizer in self._optimizers}
        if not self._waiting:
            self._over()

    def _stepping(self, schedule: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **kwargs: Any) -> Any:
            if not schedule._has_backward:  # an evaluation
                return function(*args, **kwargs)
            with self.step():
                return function(*args, **kwargs)

        return stepping

    def _optimizer_begins(self, *_: Any) -> None:
        if self._present is not None and self._present.optimizer is None:
            self._present.optimizer = self._recorder.clock.mark()

    def _optimizer_ends(self, optimizer: Any, *_: Any) -> None:
        self._waiting.discard(id(optimizer))
        if self._present is not None:
            self._present.finish = self._recorder.clock.mark()
            if not self._waiting:
                self._over()

    def _over(self) -> None:
        """Nothing more comes of the present step."""
        if self._present is not None:
            self._taken.append(self._present)
            self._present = None
        self._write()

    def _write(self, *, everything: bool = False) -> None:
        """The steps that the clock is past; all of them if it must wait for the device."""
        clock = self._recorder.clock
        while self._taken:
            one = self._taken[0]
            if not (everything or len(self._taken) > MOST_TAKEN or clock.passed(one.finish)):
                return
            begin, waits, times, own = one.columns()
            last = begin + sum(waits) + sum(times)
            finish = max(clock.ns(one.finish), last)
            optimizer = None
            began = finish if one.optimizer is None else max(clock.ns(one.optimizer), last)
            if began < finish:  # else it did not end: it failed, or was interrupted
                optimizer = (began, finish)
            step = Step(step=one.step, order=0, begin=begin, finish=finish,
                        waits=waits, times=times, own=own, optimizer=optimizer)  # fmt: skip
            self._segments.write(one.actions, step)
            self._taken.popleft()


@dataclass
class _Taken:
    """A step that ran, until it is written; marks of the recorder's clock."""

    step: int
    actions: list[str]
    columns: Callable[[], Columns]
    finish: Any
    optimizer: Any = None


def recorder_of(device: torch.device) -> Recorder:
    """The recorder for stages on a device."""
    return Recorder() if device.type == "cpu" else DeviceRecorder(DeviceClock.of(device))


def _run(group: Any, folder: str | Path) -> Run:
    """Who this process is. All ranks of a job get the same run, without waiting for one another."""
    number = next(_numbers)
    mine = later_run(folder)
    ranks = [0]
    if dist.is_initialized():
        store = dist.distributed_c10d._get_default_store()
        mine = store.compare_set(f"unbubble/run/{number}", "", mine).decode()
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    return Run(
        run=mine,
        rank=dist.get_rank() if dist.is_initialized() else 0,
        world_size=dist.get_world_size() if dist.is_initialized() else 1,
        pipeline_ranks=ranks,
        host=_host(),
        epoch_ns=time_ns() - perf_counter_ns(),
    )


def _host() -> str:
    """What processes that share the monotonic clock have in common: the boot, not the name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()
