"""Live: the files that `unbubble.record` leaves of a running job, one record a line.

    ["1d0b9e5a",{"is":"run","unbubble_live":1,"run":"20260107T101500-9f3c","rank":1, …}]
    ["77c2a1f0",{"is":"order","order":0,"actions":["1RECV_F0","1F0","1B0","1SEND_B0", …]}]
    ["0a41b7d2",{"is":"step","step":7,"order":0,"begin":…,"waits":[…],"times":[…],"own":[…], …}]

The first element is the CRC-32 of the second as it stands there, so a record that a kill cut off is
known and passed over. Each file begins with its run and holds every order that its steps name.
Times are ns of the host's monotonic clock; ranks of one `host` share it.
"""

from dataclasses import dataclass
from itertools import takewhile
from typing import Literal
from zlib import crc32

import msgspec

from unbubble.action import COMPUTE, Action, Kind, parse
from unbubble.errors import InputError, some
from unbubble.trace.names import NO_STAGE
from unbubble.trace.observed import Busy, Deferred, Observed, RankSteps, Seen
from unbubble.trace.recorded import Columns, Recorded

SUFFIX = ".live.jsonl"
MAX_NS = 1 << 61
MAX_RANKS = 1 << 20
MAX_LINE_BYTES = 1 << 28
CHUNK_BYTES = 1 << 20
_OPENING = len('["00000000",')


class Run(msgspec.Struct, kw_only=True, tag="run", tag_field="is"):
    """What holds for all of a file. `pipeline_ranks`: the job's ranks of this rank's pipeline;
    `epoch_ns`: the clock's zero as Unix time."""

    unbubble_live: Literal[1] = 1
    run: str
    rank: int
    world_size: int
    pipeline_ranks: list[int]
    host: str
    epoch_ns: int


class Order(msgspec.Struct, kw_only=True, tag="order", tag_field="is"):
    """Actions in the order in which steps ran them; they are named once by number."""

    order: int
    actions: list[str]


class Step(msgspec.Struct, kw_only=True, tag="step", tag_field="is"):
    """One step. Of each action: the wait for its input, then its time, and the part of that in
    which the model ran; ns, one action after another from `begin`. `optimizer`: start and end."""

    step: int
    order: int
    begin: int
    finish: int
    waits: list[int]
    times: list[int]
    own: list[int]
    optimizer: tuple[int, int] | None = None


class Header(msgspec.Struct, tag="step", tag_field="is"):
    """What is read of a step before it is looked at."""

    step: int
    order: int
    begin: int
    finish: int


_decode_any = msgspec.json.Decoder(Run | Order | Header).decode
_decode_step = msgspec.json.Decoder(Step).decode


def encode(record: Run | Order | Step) -> bytes:
    """The record as a line."""
    body = msgspec.json.encode(record)
    return b'["%08x",%b]\n' % (crc32(body), body)


def body_of(line: bytes) -> bytes | None:
    """The record's JSON, or None where the line is damaged."""
    body = line[_OPENING:-1]
    whole = line[:2] == b'["' and line[-1:] == b"]" and line[10:_OPENING] == b'",'
    try:
        return body if whole and int(line[2:10], 16) == crc32(body) else None
    except ValueError:
        return None


@dataclass(frozen=True)
class Written:
    """A step as it stands in a file, and what is needed to understand it."""

    source: str
    run: Run
    order: Recorded
    body: bytes
    header: Header

    def observed(self) -> Observed:
        """Raises InputError where the record contradicts itself."""
        try:
            return _observed(self, _decode_step(self.body))
        except (msgspec.DecodeError, ValueError, InputError) as error:
            raise InputError(f"{self.source}: step {self.header.step}: {error}") from None


class Segment:
    """The records of one file in the order of its bytes, which may still be coming."""

    def __init__(self, source: str):
        self.source = source
        self.run: Run | None = None
        self.damaged = 0
        self._orders: dict[int, Recorded] = {}
        self._rest = b""

    def feed(self, data: bytes) -> list[Written]:
        """The steps that further bytes complete; damaged records are counted and passed over.

        Raises InputError where a record is whole and none of ours.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise InputError(f"{self.source}: a line is longer than {MAX_LINE_BYTES >> 20} MiB")
        found = []
        for line in lines:
            body = body_of(line)
            try:
                record = None if body is None else _decode_any(body)
                if isinstance(record, Run):
                    self.run = _checked(record)
                elif isinstance(record, Order):
                    self._orders[record.order] = Recorded(map(parse, record.actions))
            except (msgspec.DecodeError, InputError) as error:
                raise InputError(f"{self.source}: not a record of unbubble: {error}") from None
            if isinstance(record, Header) and self.run and record.order in self._orders:
                order = self._orders[record.order]
                found.append(Written(self.source, self.run, order, body or b"", record))
            elif not isinstance(record, Run | Order):
                self.damaged += 1
        return found

    @property
    def notes(self) -> list[str]:
        """What could not be read, in words."""
        found = []
        if self.damaged:
            found.append(f"{self.source}: {self.damaged} damaged records")
        if self._rest:
            found.append(f"{self.source}: its last {len(self._rest)} bytes, a record cut off")
        return found


def read(source: str) -> list[RankSteps]:
    """The steps of one file; none where not even its first record is whole."""
    segment, written = Segment(source), []
    try:
        with open(source, "rb") as file:
            while data := file.read(CHUNK_BYTES):
                written += segment.feed(data)
    except OSError as error:
        raise InputError(f"{source}: {error.strerror or error}") from None
    run = segment.run
    if run is None:
        return []
    once = list({one.header.step: one for one in written}.values())
    windows = [(one.header.step, one.header.finish - one.header.begin) for one in once]
    return [
        RankSteps(
            rank=run.rank,
            source=source,
            steps=Deferred(windows, [one.observed for one in once]),
            world_size=run.world_size,
            run=run.run,
            notes=tuple(segment.notes),
        )
    ]


def _checked(run: Run) -> Run:
    ranks = run.pipeline_ranks
    inside = ranks and min(ranks) >= 0 and max(ranks) < run.world_size <= MAX_RANKS
    if not (run.run and inside and run.rank in ranks and len(set(ranks)) == len(ranks)):
        raise InputError(
            f"run {run.run!r}: rank {run.rank} of a pipeline of the ranks {some(ranks)}, in a "
            f"job of {run.world_size}"
        )
    return run


def _observed(written: Written, step: Step) -> Observed:
    run, order = written.run, written.order
    columns = Columns(step.begin, step.waits, step.times, step.own)
    seen = order.seen(columns)
    at = seen[-1].end if seen else step.begin
    start, end = step.optimizer or (at, at)
    if not (-MAX_NS <= step.begin <= at <= start <= end <= step.finish <= MAX_NS):
        raise ValueError("its times are not in order")
    actions = tuple(one for one in seen if one.action.kind in COMPUTE)
    # between actions reductions are the runtime's time
    after = takewhile(lambda one: one.action.kind not in COMPUTE, reversed(seen))
    tail = [one for one in after if one.action.kind is Kind.REDUCE_GRAD][::-1]
    if step.optimizer:
        tail.append(Seen(Action(Kind.OPTIMIZER, NO_STAGE), start, end))
    busy = sum(one.end - one.start - one.overhead for one in actions) + end - start
    return Observed(
        rank=run.rank,
        source=written.source,
        step=step.step,
        begin=step.begin,
        finish=step.finish,
        busy=Busy(busy, 0, step.finish - step.begin - busy),
        host=run.host,
        actions=actions,
        tail=tuple(tail),
        halves=tuple(order.halves(seen, columns)),
        pipeline_group=tuple(run.pipeline_ranks),
    )
