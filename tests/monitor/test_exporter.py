"""Metrics as Prometheus's own parser reads them, and alert rules that use only these."""

import re
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.records import lines, write

import unbubble.monitor
from unbubble.monitor import Follower, summary
from unbubble.monitor.exporter import METRICS, Exporter

RULES = Path(unbubble.monitor.__file__).with_name("alerts.yml")
CASES = Path(__file__).with_name("alerts_test.yml")


@pytest.fixture
def found(tmp_path):
    for rank in range(2):
        write(tmp_path, rank, lines(rank, [7, 8]))
    return [summary(ready, Fraction(36)) for ready in Follower([tmp_path]).poll()]


def samples(exporter):
    text = generate_latest(exporter.registry).decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_gauges_are_the_last_step_and_counters_add_up(found):
    exporter = Exporter()
    for step in found:
        exporter.add(step)
    exporter.ranks({4: 8, 5: 9}, 3)
    values = samples(exporter)
    here = ("pipeline", "4")
    assert values["unbubble_step", here] == 8
    assert values["unbubble_step_duration_seconds", here] == found[1]["step_s"]
    assert values["unbubble_steps_total", here] == 2
    assert values["unbubble_idle_cost_total", here] == pytest.approx(2 * found[0]["idle_cost"])
    assert values["unbubble_rank_step", ("rank", "5")] == 9
    assert values["unbubble_steps_given_up_total",] == 3
    for row in found[1]["ranks"]:
        rank = ("rank", str(row["rank"]))
        key = ("unbubble_class_seconds", ("class", "imbalance_static"), here, rank)
        assert values[key] == row["imbalance_static_s"]
        both = (values["unbubble_idle_seconds_total", here, rank]
                + values["unbubble_compute_seconds_total", here, rank])  # fmt: skip
        assert both == pytest.approx(values["unbubble_step_seconds_total", here])
    # two devices idle for a share of the hour
    share = found[1]["idle_s"] / found[1]["step_s"]
    assert values["unbubble_idle_cost_per_hour", here] == pytest.approx(36 * share)


def test_a_new_run_replaces_the_gauges(found):
    exporter = Exporter()
    exporter.add(found[0])
    later = found[1] | {"run": "b", "pipeline_ranks": [0, 1], "step_s": None}
    exporter.add(later)
    values = samples(exporter)
    assert values["unbubble_step", ("pipeline", "0")] == 8
    assert ("unbubble_step", ("pipeline", "4")) not in values
    assert values["unbubble_steps_total", ("pipeline", "4")] == 1


def test_a_text_file_is_written_whole(found, tmp_path):
    exporter = Exporter()
    exporter.add(found[0])
    exporter.write(tmp_path / "unbubble.prom")
    assert (tmp_path / "unbubble.prom").read_bytes() == generate_latest(exporter.registry)


def test_the_alert_rules_use_metrics_that_there_are():
    known = {name + ("_total" if m.kind == "counter" else "") for name, m in METRICS.items()}
    used = set(re.findall(r"unbubble_\w+", RULES.read_text()))
    assert used <= known
    assert len(used) > 5
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    assert set(re.findall(r"alertname: (\w+)", CASES.read_text())) <= alerts
    if promtool := shutil.which("promtool"):
        subprocess.run([promtool, "test", "rules", CASES], check=True)


def test_the_page_names_every_metric():
    page = (Path(__file__).parents[2] / "docs" / "live.md").read_text()
    for name, metric in METRICS.items():
        shown = name + ("_total" if metric.kind == "counter" else "")
        assert f"`{shown}`" in page
