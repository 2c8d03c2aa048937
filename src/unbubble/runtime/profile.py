"""Profile: what every layer of a workload costs on this machine, as Costs by layer.

The layers run as one-layer stages of PyTorch's own schedule runtime, on one process alone, so that
what is timed is what a pipeline runs: its forward with the loss, its split and full backward.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import fmean, median, stdev
from typing import Any

import msgspec

from unbubble.costs import Costs, Duration, Edge, StageCosts
from unbubble.errors import InputError
from unbubble.runtime.launch import Job, launch
from unbubble.terminal import table, wrapped

NANOSECONDS = 10**9


class ProfileJob(msgspec.Struct, kw_only=True):
    """What the processes measure; each profiles the same layers at the same time."""

    target: str
    rounds: int
    warmup: int
    seed: int


class Samples(msgspec.Struct, kw_only=True):
    """Times of each kind of action in ns, from all processes."""

    F: list[int]
    B: list[int]
    I: list[int]
    W: list[int]


class LayerProfile(Samples, kw_only=True):
    """One layer: its times, and its bytes: saved for the backward, of these what outlives the
    input gradient, its output and its parameters."""

    name: str
    saved_bytes: int
    saved_after_input_bytes: int
    output_bytes: int
    weight_bytes: int


class Exchange(msgspec.Struct, kw_only=True):
    """Transfers of one size between two processes, samples in ns.

    `send` and `recv` are the host's time to post each; `arrival` is from the later post's end to
    the end of the receiver's wait. The receive is posted first, or last where `late`.
    """

    size_bytes: int
    late: bool
    send: list[int]
    recv: list[int]
    arrival: list[int]


class Posts(msgspec.Struct, kw_only=True):
    """Host times of posting transfers in ns."""

    send: list[int]
    recv: list[int]


class ProfileResult(msgspec.Struct, kw_only=True):
    """All that was measured; `overhead` is a stage that computes nothing, `posts` are the host's
    times of the runtime's sends and receives at the usual size of an output."""

    layers: list[LayerProfile]
    overhead: Samples
    exchanges: list[Exchange]
    posts: Posts


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A workload's measured costs: one row a layer, beside what they were made from."""

    costs: Costs
    samples: ProfileResult

    def row_notes(self) -> list[dict[str, Any]]:
        """Medians and spread (standard deviation) of every layer in ms, for the costs file."""
        return [
            {
                "medians": {name: round(median(v) / 1e6, 4) for name, v in _named(layer)},
                "spread": {name: round(stdev(v) / 1e6, 4) for name, v in _named(layer)},
            }
            for layer in self.samples.layers
        ]

    def notes(self, target: str) -> dict[str, Any]:
        """What was profiled and how, for the costs file; the model's name makes it repeatable."""
        return {
            "target": target,
            "times": "means in ms; medians and spread beside them hold the runtime's overhead",
            "samples_per_layer": len(self.samples.layers[0].B),
            "transfers": [
                {
                    "size_bytes": e.size_bytes,
                    "receive_posted": "last" if e.late else "first",
                    "send_host_us": round(median(e.send) / 1e3, 1),
                    "recv_host_us": round(median(e.recv) / 1e3, 1),
                    "arrival_us": round(median(e.arrival) / 1e3, 1),
                }
                for e in self.samples.exchanges
            ],
        }

    def table(self) -> str:
        """The layers: mean times in ms ± standard deviation, sizes in KiB; then what goes with
        every action and every transfer."""
        rows = []
        for layer in self.samples.layers:
            times = {
                kind: f"{_digits(fmean(values) / 1e6, 4)} ±{_digits(stdev(values) / 1e6, 3)}"
                for kind, (_, values) in zip("FIWB", _named(layer), strict=True)
            }
            sizes = {"saved": layer.saved_bytes, "weights": layer.weight_bytes}
            shown = {what: f"{size >> 10:,}" for what, size in sizes.items()}
            rows.append({"layer": layer.name[:11], **times, **shown})
        costs = self.costs
        line = f"ms and KiB; each action {costs.action_overhead / 1e3:.0f} us of overhead"
        if self.samples.exchanges:
            line += (
                f", a send {costs.send_host / 1e3:.0f} us and a receive "
                f"{costs.recv_host / 1e3:.0f} us of the rank's own time, then "
                f"{costs.edge.latency / 1e3:.0f} us and {float(costs.edge.ticks_per_byte):.3f} "
                "ns a byte on the way"
            )
        return "\n".join([*table(rows), wrapped(line)])


def _digits(value: float, digits: int) -> str:
    """A number of so many digits, so that numbers of any size stand in columns."""
    return f"{value:.{max(digits - len(str(int(value))), 0)}f}"


def profile(
    target: str,
    *,
    processes: int = 2,
    rounds: int = 10,
    warmup: int = 2,
    seed: int = 0,
    timeout_s: float = 120.0,
    on_progress: Callable[[str], None] = lambda line: None,
) -> Profile:
    """Measure every layer of MODULE:FUNCTION, in `processes` processes at the same time as a
    pipeline would keep them busy; two or more also measure their transfers.

    Times are means of `rounds` after `warmup`: a sum of actions needs means.
    """
    if processes < 1 or rounds < 2 or warmup < 0:
        raise InputError(
            f"a profile needs at least 1 process and 2 rounds; got {processes} and {rounds}"
        )
    argument = ProfileJob(target=target, rounds=rounds, warmup=warmup, seed=seed)
    job = Job(
        task="unbubble.runtime.profiler:profile",
        argument=msgspec.to_builtins(argument),
        processes=processes,
        timeout_s=timeout_s,
    )
    samples = msgspec.convert(launch(job, on_progress), ProfileResult)
    return Profile(costs=costs_of(samples), samples=samples)


def costs_of(samples: ProfileResult) -> Costs:
    """Costs by layer, in ns. An action's fixed overhead is taken off the layers and stands once."""
    fixed = {kind: fmean(getattr(samples.overhead, kind)) for kind in "FBIW"}

    def duration(layer: LayerProfile, kind: str) -> Duration:
        return Duration(max(0, round(fmean(getattr(layer, kind)) - fixed[kind])))

    layers = tuple(
        StageCosts(
            name=layer.name,
            forward=duration(layer, "F"),
            backward_input=duration(layer, "I"),
            backward_weight=duration(layer, "W"),
            backward=duration(layer, "B"),
            held_until_input_bytes=layer.saved_bytes - layer.saved_after_input_bytes,
            held_until_weight_bytes=layer.saved_after_input_bytes,
            weight_bytes=layer.weight_bytes,
            output_bytes=layer.output_bytes,
        )
        for layer in samples.layers
    )
    overhead = round((fixed["F"] + fixed["B"]) / 2)
    costs = Costs(stages=layers, unit="s", ticks_per_unit=NANOSECONDS, action_overhead=overhead)
    if samples.exchanges:
        costs = replace(costs, edge=_edge(samples.exchanges))
    if samples.posts.send:
        costs = replace(
            costs,
            send_host=round(fmean(samples.posts.send)),
            recv_host=round(fmean(samples.posts.recv)),
        )
    return costs


def usual_size(output_bytes: Sequence[int]) -> int:
    """The size of most tensors that a pipeline of these layers would send: the middle one."""
    return sorted(output_bytes)[len(output_bytes) // 2]


def _edge(exchanges: Sequence[Exchange]) -> Edge:
    """Latency and bandwidth by least squares over the sizes."""
    sizes = [e.size_bytes for e in exchanges]
    arrivals = [median(e.arrival) for e in exchanges]
    middle = fmean(sizes)
    spread = sum((size - middle) ** 2 for size in sizes)
    slope = sum((s - middle) * a for s, a in zip(sizes, arrivals, strict=True)) / spread
    bytes_per_s = round(NANOSECONDS / slope) if slope > 0 else 0
    latency = max(0.0, fmean(arrivals) - max(slope, 0.0) * middle)
    return Edge(
        latency=round(latency),
        ticks_per_byte=Fraction(NANOSECONDS, bytes_per_s) if bytes_per_s else Fraction(0),
    )


def _named(layer: LayerProfile) -> list[tuple[str, list[int]]]:
    return [
        ("forward", layer.F),
        ("backward_input", layer.I),
        ("backward_weight", layer.W),
        ("backward", layer.B),
    ]
