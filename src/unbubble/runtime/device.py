"""Device: the recorder for stages on an accelerator, where a call returns before its kernels ran.

Events in the stream say when the device got where: one before and one after every call of the
model, one where a transfer was handed over. They are read when the device is past them, in a later
step, so that nothing waits for it. A stream that waits for its input does so before the call's
first event; a device that waits for its host does too, and then the host recorded that event late:

    gap      = call's start − end of the action before
    overhead = as much of the gap as the host was late, but for what a wait has hidden: the host's
               own until it resumed, or the stream's on from when the host was there
    wait     = the rest of it

Once in a while device and host meet, so that the device's times can be told on the host's clock.
"""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, NamedTuple

import torch

from unbubble.runtime.recorder import PAIR, Function, Recorder
from unbubble.trace.observed import NOTICEABLE_NS
from unbubble.trace.recorded import Columns

MEET_NS = 30 * 10**9
"""So seldom device and host meet: their clocks drift apart by microseconds in the meantime."""
MEETINGS = 5
"""Of so many meetings the shortest counts."""


class Mark(NamedTuple):
    """A point in the device's stream, and when the host put it there."""

    event: Any
    host: int


class DeviceClock:
    """The host's clock (`host`, ns) for the stream of `event`, which makes events with times."""

    def __init__(self, event: Callable[[], Any], host: Callable[[], int] = perf_counter_ns):
        self._event = event
        self._host = host
        self._reference = Mark(None, 0)
        self.meet()

    @classmethod
    def of(cls, device: torch.device) -> "DeviceClock":
        return cls(lambda: torch.Event(device=device, enable_timing=True))

    @property
    def due(self) -> bool:
        """Whether it is time to meet again."""
        return self._host() - self._reference.host > MEET_NS

    def meet(self) -> None:
        """Wait for the device; marks of before cannot be read afterwards."""
        shortest = 1 << 62
        for _ in range(MEETINGS + 1):  # the first one waits for whatever runs
            event, begin = self._event(), self._host()
            event.record()
            event.synchronize()
            end = self._host()
            if end - begin < shortest:
                shortest = end - begin
                self._reference = Mark(event, (begin + end) // 2)

    def mark(self) -> Mark:
        """The stream's present end."""
        event = self._event()
        event.record()
        return Mark(event, self._host())

    def passed(self, mark: Mark) -> bool:
        """Whether the device is past it."""
        return bool(mark.event.query())

    def ns(self, mark: Mark) -> int:
        """When the device was there, on the host's clock; waits until it is."""
        mark.event.synchronize()
        reference = self._reference
        return reference.host + round(reference.event.elapsed_time(mark.event) * 1e6)


class Call(NamedTuple):
    """Begin and end of a call of the model, and until when its host had waited itself before."""

    begin: Mark
    end: Mark
    resumed: int


class Row(NamedTuple):
    """The calls of one action; without one the stream's end after it, a call of no time."""

    calls: list[Call]
    is_pair: bool


class DeviceRecorder(Recorder):
    """Records what the device does, not when the host asked for it."""

    def __init__(self, clock: DeviceClock):
        super().__init__()
        self.clock: Any = clock
        self._rows: list[Row] = []
        self._calls: list[Call] = []

    def _clear(self) -> None:
        super()._clear()
        self._rows, self._calls = [], []

    def _enter(self, action: str) -> None:
        if not self._rows:
            self._calls = []
        super()._enter(action)

    def _leave(self) -> None:
        if not self._calls:
            after = self.clock.mark()
            self._calls.append(Call(after, after, self._waited_until))
        self._rows.append(Row(self._calls, self.action.startswith(PAIR)))
        self._calls = []
        super()._leave()

    def _timed(self, function: Function) -> Function:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._on:
                return function(*args, **kwargs)
            begin = self.clock.mark()
            try:
                return function(*args, **kwargs)
            finally:
                # the loss comes after its forward
                calls = self._calls if self._inside or not self._rows else self._rows[-1].calls
                calls.append(Call(begin, self.clock.mark(), self._waited_until))

        return timed

    def take(self) -> tuple[list[str], Callable[[], Columns]]:
        rows, clock = self._rows, self.clock
        return self.actions, lambda: columns(rows, clock)


def columns(rows: list[Row], clock: DeviceClock) -> Columns:
    """What the marks say, once the device is past them."""
    begin = at = clock.ns(rows[0].calls[0].begin) if rows else 0
    found = Columns(begin, [], [], [])
    for calls, is_pair in rows:
        before, wait, own = at, 0, 0
        for number, call in enumerate(calls):
            start, end = clock.ns(call.begin), clock.ns(call.end)
            if number == 0 or is_pair:  # both halves of a pair wait for inputs
                gap = max(start - at, 0)
                wait += gap - _late(call, start, at, gap)
            own += max(end - start, 0)
            at = max(at, start, end)
        found.waits.append(wait)
        found.times.append(at - before - wait)
        found.own.append(min(own, found.times[-1]))
    return found


def _late(call: Call, start: int, before: int, gap: int) -> int:
    """The part of the gap before a call that its host is to blame for."""
    if start - call.begin.host > NOTICEABLE_NS:
        return 0
    return min(max(call.begin.host - max(before, call.resumed), 0), gap)
