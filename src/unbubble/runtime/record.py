"""Record: the steps of a training loop of one's own, written as they happen.

    with unbubble.record(schedule, optimizer, folder="steps"):
        for inputs, targets in data:
            schedule.step(inputs, target=targets)
            optimizer.step()
            optimizer.zero_grad()

Every rank does so. `unbubble trace steps` says where a step went, `unbubble watch steps` follows.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter_ns, time_ns
from types import TracebackType
from typing import Any
from uuid import uuid4

import torch
from torch import distributed as dist
from torch.distributed.pipelining.schedules import _PipelineSchedule
from torch.distributed.pipelining.stage import _PipelineStageBase

from unbubble.errors import InputError
from unbubble.runtime.recorder import Recorder, stages_of
from unbubble.runtime.segments import Segments
from unbubble.trace.live import Run, Step

_numbers = count()


class record:  # noqa: N801  # a context manager, named as it reads in a loop
    """Record every training step of a pipeline on this rank, while the block runs.

    `watched` are a schedule of torch.distributed.pipelining, or the stages that a loop of one's own
    runs (then each step is a `with recorder.step():`), and the optimizers, whose time then belongs
    to the step. All ranks of the job give the same shared `folder`, or each its own.

    `first_step` numbers the first step (a resumed job's is not 0). `keep` files of about
    `max_bytes` stay for each rank. Raises InputError for what cannot be watched, OSError where the
    folder cannot be written.
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
        self._segments = Segments(folder, _run(stages[0].group), max_bytes=max_bytes, keep=keep)
        self._recorder = Recorder()
        self._pending: Step | None = None
        self._actions: list[str] = []
        self._optimizer_begin = 0
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
        self._write()
        while self._undo:
            self._undo.pop()()
        self._recorder.unwatch()
        self._segments.close()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Everything of one step but the optimizer; a watched schedule calls it by itself."""
        self._write()
        recorder = self._recorder
        with recorder.recording():
            yield
        if not recorder.actions:
            return
        before, times = recorder.begin, []
        for end, wait in zip(recorder.ends, recorder.waits, strict=True):
            times.append(end - before - wait)
            before = end
        self._actions = recorder.actions
        self._pending = Step(
            step=self.next_step,
            order=0,
            begin=recorder.begin,
            finish=perf_counter_ns(),
            waits=recorder.waits,
            times=times,
            own=recorder.computes,
        )
        self.next_step += 1
        self._waiting = {id(optimizer) for optimizer in self._optimizers}
        self._optimizer_begin = 0
        if not self._waiting:
            self._write()

    def _stepping(self, schedule: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **kwargs: Any) -> Any:
            if not schedule._has_backward:  # an evaluation
                return function(*args, **kwargs)
            with self.step():
                return function(*args, **kwargs)

        return stepping

    def _optimizer_begins(self, *_: Any) -> None:
        self._optimizer_begin = self._optimizer_begin or perf_counter_ns()

    def _optimizer_ends(self, optimizer: Any, *_: Any) -> None:
        self._waiting.discard(id(optimizer))
        if self._pending is not None:
            end = perf_counter_ns()
            self._pending.optimizer = (self._optimizer_begin, end)
            self._pending.finish = end
            if not self._waiting:
                self._write()

    def _write(self) -> None:
        if self._pending is not None:
            self._segments.write(self._actions, self._pending)
            self._pending = None


def _run(group: Any) -> Run:
    """Who this process is. All ranks of a job get the same run, without waiting for one another."""
    number = next(_numbers)
    mine = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"
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
