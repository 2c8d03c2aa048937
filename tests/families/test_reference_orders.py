"""Published figures of fixed orders under one exact latency model, to their last printed digit."""

import json
from fractions import Fraction

import pytest
from tests.families.peaks import peaks
from tests.shared import shared

from unbubble.costs import Costs
from unbubble.families import generate
from unbubble.simulate import simulate

COLUMNS = {
    "1f1b": ("1f1b", 1),
    "interleaved v=2": ("interleaved-1f1b", 2),
    "interleaved v=4": ("interleaved-1f1b", 4),
    "looped-bfs v=2": ("looped-bfs", 2),
    "interleaved-zb v=2": ("interleaved-zb", 2),
    "interleaved-zb v=4": ("interleaved-zb", 4),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_the_span_bubble_of_every_row(column):
    table = json.loads(shared("reference/fixed_orders.json").read_text())
    name, virtual = COLUMNS[column]
    for row in table["rows"]:
        schedule = generate(name, row["p"], row["m"], virtual)
        costs = Costs.uniform(
            schedule.placement,
            forward=row["F"],
            backward_input=row["I"],
            backward_weight=row["W"],
            p2p=Fraction(str(row["c"])),
        )
        bubble = simulate(schedule, costs).bubble_fraction_span
        assert round(float(bubble), 4) == row["bubble"][table["columns"].index(column)]


def test_p_divides_m_in_every_row_so_that_both_interleaved_rules_give_the_same_order():
    table = json.loads(shared("reference/fixed_orders.json").read_text())
    assert len(table["rows"]) == 4
    for row in table["rows"]:
        p, m = row["p"], row["m"]
        assert generate("interleaved-1f1b", p, m, rule="megatron") == generate(
            "interleaved-1f1b", p, m, rule="pytorch"
        )


@pytest.mark.parametrize(
    ("name", "virtual", "key"),
    [
        ("1f1b", 1, "1f1b"),
        ("interleaved-1f1b", 2, "interleaved v=2"),
        ("interleaved-1f1b", 4, "interleaved v=4"),
        ("looped-bfs", 2, "looped-bfs v=2"),
        ("interleaved-zb", 2, "interleaved-zb"),
        ("interleaved-zb", 4, "interleaved-zb"),
        ("dualpipe-v", 2, "dualpipe-v"),
    ],
)
def test_the_peak_of_the_fullest_rank(name, virtual, key):
    peak = json.loads(shared("reference/fixed_orders.json").read_text())["peak_p8"][key]
    assert max(peaks(generate(name, 8, 32, virtual))) == Fraction(str(peak))
