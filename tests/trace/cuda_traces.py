"""Writes what PyTorch's profiler records of a pipeline on devices, from a simulated timeline.

Host ranges are launch time only and run ahead of the device; kernels carry the correlation of
their launch; a transfer is a SendRecv kernel from where its end is ready to the arrival. Inside
every forward there is an all-reduce of the tensor-parallel group and an all-to-all, whose kernel
is a SendRecv too. Backwards are launched by autograd's thread, within operations of its engine.
"""

import json
from itertools import pairwise

from unbubble.action import Action, Kind, receive_of
from unbubble.simulate import Timeline

BASE_NS = 1_700_000_000_000_000_000
LAUNCH_NS = 2_000
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
ENGINE = "autograd::engine::evaluate_function: AddmmBackward0"
MAIN, AUTOGRAD = 1, 2
FORWARD = {"Sequence number": 41, "Fwd thread id": 0}
BACKWARD = {"Sequence number": 41, "Fwd thread id": 1}


class Writer:
    """One rank's events; times in ns."""

    def __init__(self, rank, world, offset_ns=0, named=True):
        self.rank, self.world, self.offset_ns, self.named = rank, world, offset_ns, named
        self.events, self.clock, self.correlation = [], 0, 0
        self.thread = MAIN

    def event(self, cat, name, start, end, tid, **args):
        times = {"ts": start / 1000, "dur": (end - start) / 1000}
        row = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, **times, "args": args}
        self.events.append(row)

    def launch(self, name, start, end, stream, **args):
        self.correlation += 1
        args |= {"correlation": self.correlation}
        begin = self.clock
        self.event("cuda_runtime", "cudaLaunchKernel", begin, begin + 500, self.thread, **args)
        self.event("kernel", name, start, end, stream, stream=stream, **args)
        self.clock += LAUNCH_NS

    def range(self, name, launches):
        begin = self.clock
        for launch in launches:
            self.launch(*launch[:4], **launch[4])
        self.clock += 300
        self.event("user_annotation", name, begin, self.clock, 1)
        self.clock += 100

    def engine(self, name, launches):
        """A range whose launches autograd's thread does, within an operation of its engine.

        What a launch's name calls `again` is done by a forward that runs there.
        """
        begin, self.thread = self.clock, AUTOGRAD
        for launch in launches:
            before = self.clock
            self.launch(*launch[:4], **launch[4])
            if "again" in launch[0]:
                self.event("cpu_op", "aten::linear", before, self.clock - 1, AUTOGRAD, **FORWARD)
        self.event("cpu_op", ENGINE, begin, self.clock, AUTOGRAD, **BACKWARD)
        self.thread = MAIN
        self.clock += 300
        self.event("user_annotation", name, begin, self.clock, MAIN)
        self.clock += 100

    def write(self, folder, indent=1, **head):
        info = {"rank": self.rank, "world_size": self.world, "backend": "nccl"}
        text = json.dumps({
            "schemaVersion": 1,
            "distributedInfo": info,
            "baseTimeNanoseconds": BASE_NS + self.offset_ns,
            **head,
            "traceEvents": self.events,
        }, indent=indent)  # fmt: skip
        path = folder / f"rank{self.rank}.json"
        path.write_text(text)
        return path


def write_cuda(
    folder, timeline: Timeline, *, offsets=None, step=7, comm=0, trap=True, again=0, ranks=None,
    kernels=1, indent=1,
):  # fmt: skip
    """A file a rank, or those of some `ranks` alone. Every action launches so many kernels of work;
    `comm` ns of it are an all-reduce that nothing hides, and the first `again` ns of B and of I a
    forward that runs again (with one kernel)."""
    halves = {rank: [] for rank in range(timeline.ranks)}
    ends = {e.action: e.end for r in range(timeline.ranks) for e in timeline.events(r)}
    for t in timeline.transfers:
        maker = t.action._replace(kind=Kind.F if t.action.kind is Kind.SEND_F else Kind.B)
        made = ends.get(maker, ends.get(maker._replace(kind=Kind.I)))
        halves[t.source].append((t.action, made, t.end))
        halves[t.destination].append((receive_of(t.action), max(made - 5_000, 0), t.end))
    for rank in range(timeline.ranks) if ranks is None else ranks:
        writer = Writer(rank, timeline.ranks, (offsets or {}).get(rank, 0))
        begin = writer.clock
        for action, start, end in sorted(halves[rank], key=lambda h: h[1]):
            writer.range(f"PP:{action}", [(SEND, start, end, 20, {"Collective name": "send"})])
        for event in timeline.events(rank):
            steps = [event.start + i * (event.end - comm - event.start) // kernels
                     for i in range(kernels + 1)]  # fmt: skip
            launches = [("gemm", a, b, 7, {}) for a, b in pairwise(steps)]
            if comm:
                launches.append((REDUCE, event.end - comm, event.end, 21, {}))
            if trap and event.action.kind is Kind.F:
                middle = (event.start + event.end - comm) // 2
                launches.append((SEND, event.start, middle, 22, {"Collective name": "all_to_allv"}))
            if event.action.kind is Kind.F:
                writer.range(f"PP:{event.action}", launches)
                continue
            if again and event.action.kind in (Kind.B, Kind.I):
                first = event.start + again
                launches[0] = ("gemm", first, *launches[0][2:])
                launches.insert(0, ("gemm again", event.start, first, 7, {}))
            writer.engine(f"PP:{event.action}", launches)
        finish = max(e["ts"] * 1000 + e["dur"] * 1000 for e in writer.events)
        writer.event("user_annotation", f"ProfilerStep#{step}", begin, max(finish, writer.clock), 1)
        writer.write(folder, indent)
    return folder


class Unnamed(Writer):
    """A rank of PyTorch's own 1F1B, which names nothing: operations, autograd's links, posts."""

    links = 0

    def computed(self, name, start, end, forward=None):
        """An operation that launches a kernel; of a backward with that of its forward."""
        self.thread = MAIN if forward is None else AUTOGRAD
        begin = self.clock
        self.clock += 200
        self.launch(name, start, end, 7)
        numbers = FORWARD if forward is None else BACKWARD
        what = "aten::linear" if forward is None else ENGINE
        self.event("cpu_op", what, begin, self.clock, self.thread, **numbers)
        if forward is not None:
            self.links += 1
            row = {"cat": "fwdbwd", "name": "fwdbwd", "id": self.links, "pid": 1}
            for phase, thread, at in (("s", MAIN, forward), ("f", AUTOGRAD, begin)):
                self.events.append(row | {"ph": phase, "tid": thread, "ts": at / 1000})
        self.thread = MAIN
        self.clock += 100
        return begin

    def posted(self, direction, start, end):
        begin = self.clock
        self.launch(SEND, start, end, 20)
        for cat, name in (
            ("cpu_op", f"c10d::{direction}"),
            ("user_annotation", f"nccl:{direction}"),
        ):
            self.event(cat, name, begin, self.clock, MAIN)
        self.clock += 200

    def batched(self, posts, start, end, between=False):
        """What `batch_isend_irecv` does: sends and receives, each with the rank at its other end,
        that launch nothing, and behind them the one kernel of all, of which Kineto knows no more
        than its name. With `between` the thread computes before it."""
        begin = self.clock
        for direction, peer in posts:
            ends = {"send": {"Dst Rank": peer}, "recv": {"Src Rank": peer}}[direction]
            args = {"Collective name": direction} | (ends if peer is not None else {})
            at = self.clock
            name = "c10d::recv_" if direction == "recv" else "c10d::send"
            self.event("cpu_op", name, at, at + 900, MAIN)
            self.event("cpu_op", "record_param_comms", at + 100, at + 800, MAIN, **args)
            self.clock += 1_000
        if between:
            self.event("cpu_op", "aten::add", self.clock, self.clock + 100, MAIN)
            self.clock += 200
        self.launch(SEND, start, end, 20)
        self.event("user_annotation", "nccl:coalesced", begin, self.clock, MAIN)
        self.clock += 200


MOVES = {
    "recv-warmup": [("recv", -1)],
    "recv-extra": [("recv", -1)],
    "send-warmup": [("send", 1)],
    "exchange-next": [("send", 1), ("recv", 1)],
    "exchange-prev": [("send", -1), ("recv", -1)],
    "send-extra": [("send", -1)],
    "send-cooldown": [("send", -1)],
    "recv-cooldown": [("recv", 1)],
}


def write_batched(
    folder, rows, *, alone=True, peer=lambda rank, direction, by: rank + by, between=False
):
    """A file a rank of a 1F1B step (a timetable of `megascan_traces`, µs) whose transfers are in
    batches, single ones only if `alone`; its actions are recovered as those of `Unnamed`."""
    for rank, row in enumerate(rows):
        writer, forwards = Unnamed(rank, len(rows)), {}
        for name, index, start, end, took in row:
            begin, finish = 1_000 * start, 1_000 * end
            if name.startswith("forward"):
                forwards[index] = writer.computed("gemm", begin, finish)
            elif name.startswith("backward"):
                writer.computed("gemm", begin, finish, forwards[index])
            elif took is not None:
                posts = [(way, peer(rank, way, by)) for way, by in MOVES[name]]
                if len(posts) > 1 or alone:
                    writer.batched(posts, begin, finish, between)
                else:
                    writer.posted(posts[0][0], begin, finish)
        end = 1_000 * max(row[-1][3] for row in rows)
        writer.range("Optimizer.step#Adam.step", [("adam", end, end + 50_000, 7, {})])
        writer.write(folder, host_name="box")
    return folder


def write_unnamed(folder, timeline: Timeline):
    """A file a rank of a 1F1B step, as `Unnamed` has it."""
    ends = {e.action: e.end for r in range(timeline.ranks) for e in timeline.events(r)}
    for rank in range(timeline.ranks):
        writer, forwards = Unnamed(rank, timeline.ranks), {}
        moved = {t.action: t for t in timeline.transfers}

        def post(direction, kind, stage, microbatch, moved=moved, writer=writer):
            transfer = moved.get(Action(kind, stage, microbatch))
            if transfer:
                early = 0 if direction == "send" else 3_000
                writer.posted(direction, max(transfer.start - early, 0), transfer.end)

        for event in timeline.events(rank):
            kind, stage, number = event.action[:3]
            if kind is Kind.F:
                post("recv", Kind.SEND_F, stage - 1, number)
                forwards[number] = writer.computed("gemm", event.start, event.end)
                post("send", Kind.SEND_F, stage, number)
            else:
                post("recv", Kind.SEND_B, stage + 1, number)
                writer.computed("gemm", event.start, event.end, forwards[number])
                post("send", Kind.SEND_B, stage, number)
        end = max(ends.values())
        writer.range("Optimizer.step#Adam.step", [("adam", end, end + 50_000, 7, {})])
        writer.write(folder, host_name="box")
    return folder
