"""Exporter: the figures of the last steps as Prometheus metrics, over HTTP or as a text file.

Gauges are those of the last complete step. Counters add up what this process has seen; they begin
at 0 with it, as Prometheus expects.
"""

from collections.abc import Iterator, Mapping
from errno import EACCES, EADDRINUSE, EPERM
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from unbubble.attribution import CLASSES
from unbubble.errors import InputError
from unbubble.files import write_text


class Metric(NamedTuple):
    """A metric's kind, what it says, and its labels; a pipeline is labelled by its first rank."""

    kind: str
    help: str
    labels: tuple[str, ...] = ("pipeline",)


METRICS = {
    "unbubble_step": Metric("gauge", "Number of the last complete step"),
    "unbubble_step_duration_seconds": Metric("gauge", "First action's start to the tail's end"),
    "unbubble_step_begun_timestamp_seconds": Metric("gauge", "When the last complete step began"),
    "unbubble_bubble_ratio": Metric("gauge", "Idle / (ranks x makespan)"),
    "unbubble_class_ratio": Metric(
        "gauge", "Mean share of the step over the ranks, by class", ("pipeline", "class")
    ),
    "unbubble_class_seconds": Metric(
        "gauge", "A rank's part of the step in one class", ("pipeline", "rank", "class")
    ),
    "unbubble_idle_cost_per_hour": Metric("gauge", "Price of the devices' idle share of an hour"),
    "unbubble_steps": Metric("counter", "Complete steps"),
    "unbubble_step_seconds": Metric("counter", "Their durations added up"),
    "unbubble_compute_seconds": Metric("counter", "A rank's time at work", ("pipeline", "rank")),
    "unbubble_idle_seconds": Metric("counter", "A rank's other time", ("pipeline", "rank")),
    "unbubble_idle_cost": Metric("counter", "Idle time x price of a device"),
    "unbubble_rank_step": Metric("gauge", "Last step that a rank has written", ("rank",)),
    "unbubble_steps_given_up": Metric("counter", "Steps that some rank never wrote", ()),
}
"""By name; a counter's carries `_total` in Prometheus."""

Values = dict[tuple[str, ...], float]


class Exporter:
    """Holds the metrics' values; a collector of `prometheus_client`."""

    def __init__(self) -> None:
        try:
            import prometheus_client
            from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
        except ImportError:
            raise InputError(
                "Prometheus metrics need prometheus-client; pip install 'unbubble[monitor]'"
            ) from None
        self._client = prometheus_client
        self._families = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
        self._lock = Lock()
        self._run = ""
        self._values: dict[str, Values] = {name: {} for name in METRICS}
        self.registry = prometheus_client.CollectorRegistry()
        self.registry.register(self)

    def add(self, step: Mapping[str, Any]) -> None:
        """A step's summary. A new run's ranks take the place of the old ones."""
        pipeline = str(step["pipeline_ranks"][0])
        here = (pipeline,)
        with self._lock:
            if step["run"] != self._run:
                self._run = step["run"]
                for name, metric in METRICS.items():
                    if metric.kind == "gauge":
                        self._values[name].clear()
            self._set("unbubble_step", here, step["step"])
            self._set("unbubble_step_begun_timestamp_seconds", here, step["begun_s"])
            self._count("unbubble_steps", here, 1)
            if step["step_s"] is None:
                return
            self._set("unbubble_step_duration_seconds", here, step["step_s"])
            self._set("unbubble_bubble_ratio", here, step["bubble_fraction"])
            self._count("unbubble_step_seconds", here, step["step_s"])
            for name in CLASSES:
                self._set("unbubble_class_ratio", (pipeline, name), step["fractions"][name])
            for row in step["ranks"]:
                rank = str(row["rank"])
                for name in CLASSES:
                    key = (pipeline, rank, name)
                    self._set("unbubble_class_seconds", key, row[f"{name}_s"])
                self._count("unbubble_compute_seconds", (pipeline, rank), row["compute_s"])
                self._count("unbubble_idle_seconds", (pipeline, rank), row["idle_s"])
            if step["idle_cost"] is not None:
                an_hour = step["idle_cost"] / step["step_s"] * 3600 if step["step_s"] else 0.0
                self._set("unbubble_idle_cost_per_hour", here, an_hour)
                self._count("unbubble_idle_cost", here, step["idle_cost"])

    def ranks(self, last_step: Mapping[int, int], given_up: int) -> None:
        """How far each rank is, and the steps that will never be complete."""
        with self._lock:
            self._values["unbubble_rank_step"] = {(str(r),): s for r, s in last_step.items()}
            self._values["unbubble_steps_given_up"] = {(): given_up}

    def _set(self, name: str, labels: tuple[str, ...], value: float) -> None:
        self._values[name][labels] = value

    def _count(self, name: str, labels: tuple[str, ...], more: float) -> None:
        values = self._values[name]
        values[labels] = values.get(labels, 0.0) + more

    def collect(self) -> Iterator[Any]:
        """The metrics with their values, as `prometheus_client` asks for them."""
        with self._lock:
            for name, metric in METRICS.items():
                family = self._families[metric.kind](name, metric.help, labels=metric.labels)
                for labels, value in self._values[name].items():
                    family.add_metric(labels, value)
                yield family

    def serve(self, port: int, address: str) -> None:
        """Answer scrapes on http://address:port/metrics from a thread, until the process ends.

        Raises InputError where nothing can listen there, by the options of `unbubble watch`.
        """
        try:
            self._client.start_http_server(port, addr=address, registry=self.registry)
        except OSError as error:
            raise InputError(_refused(port, address, error)) from None

    def write(self, path: str | Path) -> None:
        """The metrics as a file for node_exporter's textfile collector, all of it or nothing."""
        write_text(path, self._client.generate_latest(self.registry).decode())


def _refused(port: int, address: str, error: OSError) -> str:
    """Which of port and address is wrong, and what would work."""
    reason = f"{error.strerror or error}"
    if error.errno == EADDRINUSE:
        return (
            f"--port {port}: something listens there already (on {address}); give another port, "
            "or end what has it"
        )
    if error.errno in (EACCES, EPERM):
        return f"--port {port}: {reason}; ports below 1024 may be kept for root, give a higher one"
    return (
        f"--address {address}: {reason}; give an address of this machine, 127.0.0.1 for itself "
        "alone or 0.0.0.0 for everyone"
    )
