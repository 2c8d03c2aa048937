"""The published figures: as the publications have them, reproduced, and a miss is a miss."""

import json
from fractions import Fraction

import pytest
from tests.shared import shared

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.formulas import Times, interleaved_span
from unbubble.simulate import simulate
from unbubble.validate import (
    PUBLICATIONS,
    controllable_memory,
    dualpipe,
    figures,
    fixed_orders,
    zero_bubble,
)
from unbubble.validate.figure import Figure


@pytest.mark.parametrize("publication", PUBLICATIONS)
def test_every_figure_is_reproduced(publication):
    found = list(figures(publication))
    assert len(found) > 10
    assert [(f.case, f.what, f.theirs, float(f.ours)) for _, f in found if not f.good] == []


def test_a_publication_that_is_none_names_those_there_are():
    with pytest.raises(InputError, match="no publication is called 'x'; known are textbook, zero"):
        list(figures("x"))


@pytest.mark.parametrize(
    ("theirs", "ours", "at_most", "good"),
    [
        ("0.2347", "0.23474", False, True),
        ("0.2347", "0.23476", False, False),
        ("0.2347", "0.2346", False, False),
        ("0.2347", "0.2", True, True),
        ("0.2347", "0.2348", True, False),
        ("77", "77", False, True),
        ("77", "78", False, False),
    ],
)
def test_a_figure_is_good_within_half_of_its_last_digit(theirs, ours, at_most, good):
    figure = Figure(
        case="", what="", theirs=theirs, ours=Fraction(ours), source="", at_most=at_most
    )
    assert figure.good == good
    assert figure.error == Fraction(ours) - Fraction(theirs)


def test_other_figures_have_relative_errors_and_some_an_allowance():
    figure = Figure(
        case="", what="", theirs="50", ours=Fraction(52), source="", fraction=False,
        allowed=Fraction(2),
    )  # fmt: skip
    assert figure.error == Fraction(1, 25)
    assert figure.tolerance == Fraction(5, 2)
    assert figure.good


def same(printed, number):
    return Fraction(printed) == Fraction(str(number))


@pytest.mark.parametrize(
    ("name", "table", "unit"),
    [
        ("zero_bubble_table5", zero_bubble.TABLE_5, "{}_ms"),
        ("zero_bubble_table8_zbv", zero_bubble.TABLE_8, "{}_us"),
    ],
)
def test_the_tables_of_zero_bubble_are_typed_as_printed(name, table, unit):
    rows = json.loads(shared(f"reference/{name}.json").read_text())["rows"]
    for ours, theirs in zip(table, rows, strict=True):
        assert (ours.ranks, ours.microbatches) == (theirs["p"], theirs["m"])
        assert ours.v == theirs.get("v_of_1f1b_i", 2)
        for time in ("forward", "backward_input", "backward_weight"):
            key = unit.format(time if unit == "{}_ms" else f"chunk_{time}")
            assert same(getattr(ours, time), theirs[key])
        assert same(ours.p2p, theirs[unit.format("p2p")])
        assert ours.bubbles.keys() == theirs["bubble"].keys()
        assert all(same(ours.bubbles[k], value) for k, value in theirs["bubble"].items())


def test_the_table_of_controllable_memory_is_typed_as_printed():
    rows = json.loads(shared("reference/controllable_memory.json").read_text())["rows"]
    typed = iter(controllable_memory.ROWS)
    for row in rows:
        assert row["m"] == 4 * row["p"]
        for key in ("v_min", "v_half"):
            p, schedule, *numbers = next(typed)
            assert (p, schedule) == (row["p"], key.replace("_", "-"))
            printed = [row[key][k] for k in ("span", "bubble", "peak_microbatches")]
            assert all(map(same, numbers, printed))
    assert next(typed, None) is None


def test_the_table_of_fixed_orders_is_typed_as_printed():
    table = json.loads(shared("reference/fixed_orders.json").read_text())
    for (p, m, times, bubbles), row in zip(fixed_orders.ROWS, table["rows"], strict=True):
        assert (p, m) == (row["p"], row["m"])
        assert all(map(same, times.split(), (row[k] for k in "FIWc")))
        assert all(map(same, bubbles.split(), row["bubble"]))
        assert len(bubbles.split()) == len(row["bubble"]) == len(fixed_orders.ORDERS)
    held = {f"{name} {v}": printed for name, v, printed in fixed_orders.HELD}
    peaks = table["peak_p8"]
    assert same(held["interleaved-1f1b 2"], peaks["interleaved v=2"])
    assert same(held["interleaved-1f1b 4"], peaks["interleaved v=4"])
    assert same(held["looped-bfs 2"], peaks["looped-bfs v=2"])
    assert same(held["interleaved-zb 2"], peaks["interleaved-zb"])
    assert same(held["zbv-zero-bubble 2"], peaks["zb-v"])
    assert same(held["dualpipe-v 2"], peaks["dualpipe-v"])
    assert same(held["1f1b 1"], peaks["1f1b"])


@pytest.mark.parametrize("row", zero_bubble.TABLE_5 + zero_bubble.TABLE_8)
def test_megatrons_interleaved_order_pays_p_transfers_more_than_the_closed_form(row):
    p, m, v = row.ranks, row.microbatches, row.v
    f, i, w = (row.stages * Fraction(t) for t in row[3:6])
    hop = Fraction(row.p2p)
    schedule = generate("interleaved-1f1b", p, m, v)
    costs = Costs.uniform(
        schedule.placement, forward=f, backward_input=i, backward_weight=w, p2p=hop
    )
    span = Fraction(simulate(schedule, costs).span, costs.ticks_per_unit)
    assert span - interleaved_span(p, m, v, Times(f, i, w), hop) == p * hop


def test_what_dualpipe_holds_is_as_printed():
    """DualPipe-V's twice the parameters and PP+1 activations stood there as 1 and PP/2 + ½, in
    another unit than those of the README."""
    table = json.loads(shared("reference/published_runs.json").read_text())["dualpipe"]
    printed = {
        f"PP={pp}, in stages": {
            f"{name.replace('one_f_one_b', '1f1b').replace('_', '-').replace('zb1p', 'zb-1p')} "
            + what: str(value if what == "parameters" else pp + ("+1" in value))
            for what, key in (("held", "activations"), ("parameters", "parameters"))
            for name, value in table[key].items()
        }
        for pp in dualpipe.STAGES
    }
    for figure in dualpipe.figures():
        if figure.case in printed:
            assert figure.theirs == printed[figure.case].pop(figure.what)
    assert not any(printed.values())
