"""The costs file: exact, reversible, and refused in one sentence where it is wrong."""

import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbubble.costs import CHANNELS, Costs, Duration, Edge, StageCosts, Tail
from unbubble.costs_file import (
    CLASSES,
    EDGE,
    KEYS,
    PARTS,
    ROW_KEYS,
    TAIL_TIMES,
    dump_costs,
    format_costs,
    load_costs,
    parse_costs,
)
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.quantity import SECONDS
from unbubble.schedule.placement import linear
from unbubble.simulate import simulate

EXAMPLE = """
unit = "ms"
send_host = 0.2
overlap = false

[edges]
latency = "20us"
bandwidth = "25GB/s"

[[layers]]
name = "embedding"
forward = {compute = 2.1, communication = 0.3, overhead = 0.1}
backward_input = 0.1
backward_weight = "3ms"
output_bytes = "4MiB"
spread = {forward = 0.01}

[[layers]]
forward = 1
backward = 2.000001

[tail]
optimizer = 7
overlap_reduce = true

[speed]
1 = 1.25
"""


def test_times_in_seconds_become_nanoseconds():
    costs = parse_costs(EXAMPLE)
    assert (costs.unit, costs.ticks_per_unit) == ("s", 10**9)
    first, second = costs.stages
    assert first.name == "embedding"
    assert first.forward == Duration(2_100_000, 300_000, 100_000)
    assert first.backward_weight == Duration(3_000_000)
    assert second.backward == Duration(2_000_001)
    assert second.backward_input is None
    assert costs.edge == Edge(20_000, Fraction(1, 25))
    assert costs.edge.transfer(first.output_bytes) == 20_000 + round(4 * 2**20 / 25)
    assert costs.send_host == 200_000
    assert costs.tail == Tail(optimizer=7_000_000, overlap_reduce=True)
    assert costs.speed == {1: Fraction(5, 4)}
    assert not costs.overlap


def test_times_in_a_unit_of_the_callers_own_are_exact():
    costs = parse_costs('{"stages": [{"forward": 0.1, "backward": 0.25}]}')
    assert (costs.unit, costs.ticks_per_unit) == ("", 20)
    assert costs.stages[0].forward == Duration(2)
    assert costs.stages[0].backward == Duration(5)


def test_times_that_all_carry_a_unit_need_no_unit_key():
    costs = parse_costs('{"stages": [{"forward": "1ms", "backward": "2us", "recompute": 0}]}')
    assert costs.unit == "s"
    assert costs.stages[0].backward == Duration(2_000)


def test_transfers_in_an_own_unit_are_exact_too():
    costs = parse_costs(
        '{"edges": {"bandwidth": 100}, "stages": '
        '[{"forward": 1, "backward": 2, "output_bytes": 50}]}'
    )
    assert costs.in_unit(costs.edge.transfer(50)) == 0.5


def test_times_on_a_slow_rank_are_exact_too():
    """A forward of 1 on a rank 1.5 times as slow took 2: it went to the nearest whole tick."""
    costs = parse_costs(
        '{"speed": [1.5, "4/3"], "stages": [{"forward": 1, "backward": 3}, '
        '{"forward": 0.5, "backward": 1}]}'
    )
    step = simulate(generate("1f1b", 2, 1), costs)
    assert [step.in_unit(work) for work in step.work] == [6, 2]


def test_a_speed_of_many_digits_leaves_room_to_add_up():
    costs = parse_costs('{"speed": [1.0371234567], "stages": [{"forward": 5e6, "backward": 5e6}]}')
    step = simulate(generate("1f1b", 1, 1000), costs)
    assert step.in_unit(step.makespan) == 10371234567


ODD = '"edges": {"bandwidth": 712345.6789012}'
"""The transfer of one byte is a whole number of no unit above 1e-12."""


def test_times_on_a_slow_rank_stay_exact_beside_transfers_that_cannot_be():
    """The transfer's missing unit left the factor out: the rank's work was 2.666666."""
    costs = parse_costs(
        f'{{"speed": ["4/3"], {ODD}, "stages": [{{"forward": 1, "backward": 1, '
        '"output_bytes": 1}]}'
    )
    step = simulate(generate("1f1b", 1, 1), costs)
    assert Fraction(step.work[0], step.ticks_per_unit) == Fraction(8, 3)


def test_transfers_that_cannot_be_exact_are_as_fine_as_short_times_need():
    """They went to the nearest millionth of a unit, whatever the times: 1.4e-6 was 1e-6."""
    costs = parse_costs(
        f'{{{ODD}, "stages": [{{"forward": 1e-5, "backward": 1e-5, "output_bytes": 1}}]}}'
    )
    assert costs.in_unit(costs.edge.transfer(1)) == pytest.approx(1 / 712345.6789012, rel=1e-6)


def test_exact_transfers_leave_room_for_long_times():
    """The file was refused: 5e6 of 7e11 ticks are too long, though no time needs that many."""
    costs = parse_costs(
        '{"edges": {"bandwidth": 7e11}, "stages": [{"forward": 5e6, "backward": 5e6, '
        '"output_bytes": 1}]}'
    )
    step = simulate(generate("1f1b", 1, 1000), costs)
    assert step.in_unit(step.makespan) == 1e10


def test_edges_by_class_and_by_pair():
    rows = ",".join(['{"forward": 1, "backward": 1}'] * 4)
    costs = parse_costs(
        '{"edges": {"same_box": {"latency": 1}, "across_boxes": {"latency": 5}, '
        '"ranks_per_box": 2, "0>3": {"latency": 9}}, "stages": [' + rows + "]}"
    )
    latency = [[costs.edge_between(a, b).latency for b in range(4)] for a in range(4)]
    assert latency == [[0, 1, 5, 9], [1, 0, 5, 5], [5, 5, 0, 1], [5, 5, 1, 0]]


@pytest.mark.parametrize(
    ("classes", "inside", "outside"),
    [
        ('"across_boxes": {"latency": 5}', 0, 5),
        ('"across_boxes": {"latency": 5}, "default": {"latency": 2}', 2, 5),
        ('"same_box": {"latency": 1}, "default": {"latency": 2}', 1, 2),
        ('"same_box": {"latency": 1}', 1, 0),
    ],
)
def test_a_class_of_edges_says_nothing_of_the_other(classes, inside, outside):
    """Edges across boxes alone held inside the boxes too, and were not looked at beside a
    default."""
    rows = ",".join(['{"forward": 1, "backward": 1}'] * 4)
    costs = parse_costs(f'{{"edges": {{{classes}, "ranks_per_box": 2}}, "stages": [{rows}]}}')
    assert costs.edge_between(0, 1).latency == costs.edge_between(3, 2).latency == inside
    assert costs.edge_between(1, 2).latency == costs.edge_between(3, 0).latency == outside


ROW = '"stages": [{"forward": 1, "backward": 1}]'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "costs: the file is empty; a costs file with rows"),
        (" \n", "costs: the file is empty"),
        ("{", "costs: not JSON: "),
        ("forward: 1", "costs: not TOML"),
        ("[" * 100_000, "costs: not TOML"),
        ('{"stages":' + "[" * 100_000, "costs: not JSON"),
        ("unit = 'ms'", "it holds neither"),
        ("stages = []\nlayers = []", "it holds both"),
        ("stages = []", "costs: stages: there is no row"),
        ("stages = 3", "costs: stages: 3 is not a list"),
        ("stages = [3]", r"costs: stages\[0\]: 3 is not a table"),
        ('{"stages": [{"backward": 1}]}', r"stages\[0\]: the key 'forward' is missing"),
        ('{"stages": [{"forward": 1, "backward_input": 1}]}', r"stages\[0\]: no backward time"),
        ('{"stages": [{"forward": -1, "backward": 1}]}', "forward: -1 is negative; a time is at"),
        ('{"stages": [{"forward": "-1/3", "backward": 1}]}', "forward: -1/3 is negative"),
        ('{"stages": [{"forward": "1/0", "backward": 1}]}', "forward: '1/0' is not a fraction"),
        ('{"stages": [{"forward": "nan", "backward": 1}]}', "forward: 'nan' is not a finite"),
        ("stages = [{forward = nan, backward = 1}]", "forward: 'nan' is not a finite number"),
        ("stages = [{forward = -inf, backward = 1}]", "forward: '-inf' is not a finite number"),
        ("stages = [{forward = true, backward = 1}]", "forward: True is neither a number nor"),
        ("stages = [{forward = [1], backward = 1}]", r"forward: \[1\] is neither a number nor"),
        ("stages = [{forward = 1e300, backward = 1}]", "forward: 1e\\+300 is too large; a number"),
        ("stages = [{forward = 1e29, backward = 1}]", "forward: 1e\\+29 is too long to add up"),
        ("stages = [{forward = 1, backward = '3 lightyears'}]", "unknown unit 'lightyears'"),
        ("stages = [{forward = 1, backward = '3ms'}]", "'3ms' carries a unit and the file's plain"),
        ("stages = [{forward = 1, bakward = 1}]", "unknown key 'bakward'; did you mean backward"),
        ("stages = [{forward = {kernel = 1}, backward = 1}]", "unknown key 'kernel'; known are"),
        ('{"edgse": 1, ' + ROW + "}", "costs: unknown key 'edgse'; did you mean edges"),
        ('{"channel": "radio", ' + ROW + "}", "channel: 'radio' is not known; known are unlimited"),
        ('{"overlap": 1, ' + ROW + "}", "overlap: 1 is neither true nor false"),
        ('{"edges": {"0-": {}}, ' + ROW + "}", "edges: '0-' is neither latency, bandwidth, a cla"),
        ('{"edges": {"same_box": {}}, ' + ROW + "}", "edges: same_box needs ranks_per_box"),
        ('{"edges": {"bandwidth": 0}, ' + ROW + "}", "edges.bandwidth: 0 must be above 0"),
        ('{"edges": {"bandwidth": "1GB/s"}, ' + ROW + "}", "'1GB/s' is per second and the times"),
        ('{"speed": {"x": 1}, ' + ROW + "}", "speed: 'x' is not a rank"),
        ('{"speed": [0], ' + ROW + "}", r"speed\[0\]: 0 must be above 0"),
        ('{"ticks_per_unit": 0, ' + ROW + "}", "ticks_per_unit: 0 must be at least 1"),
        ('{"ticks_per_unit": 1.5, ' + ROW + "}", "ticks_per_unit: 1.5 is not an integer"),
        ("stages = [{forward = 1, backward = 1, weight_bytes = -4}]", "-4 is negative; a size"),
        ("stages = [{forward = 1, backward = 1, weight_bytes = 1e30}]", "more bytes than any"),
        ('{"speed": [1e6], "stages": [{"forward": 1e15, "backward": 1}]}', "speed makes the longe"),
        (
            '{"edges": {"bandwidth": 1e-300}, "stages": [{"forward": 1, "backward": 1, '
            '"output_bytes": 9}]}',
            "edges: a transfer takes too long",
        ),
        ("stages = [{forward = 0.12345678901234567, backward = 1}]", "no common unit"),
    ],
)
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_costs(text)
    assert "\n" not in str(caught.value).strip()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml: No such file or directory; a costs file"):
        load_costs(tmp_path / "none.toml")


ticks = st.integers(0, 10**15)
durations = st.builds(Duration, ticks, ticks, ticks) | ticks.map(Duration)
sizes = st.integers(0, 10**13)
halves = {"backward_input": durations, "backward_weight": durations}
rows = st.one_of(
    st.builds(
        StageCosts,
        name=st.text(max_size=5),
        forward=durations,
        overlapped=st.none() | durations,
        recompute=durations,
        held_until_input_bytes=sizes,
        held_until_weight_bytes=sizes,
        weight_bytes=sizes,
        output_bytes=sizes,
        **backward,
    )
    for backward in (halves, {"backward": durations}, {**halves, "backward": durations})
)
fractions = st.fractions(0, 1000, max_denominator=10**6)
edges = st.builds(Edge, ticks, fractions)
pairs = st.tuples(st.integers(0, 9), st.integers(0, 9))
unit_and_ticks = st.tuples(st.sampled_from(["", "s", "step"]), st.integers(1, 10**12)) | st.just(
    ("s", 10**9)
)


@given(
    st.lists(rows, min_size=1, max_size=3),
    unit_and_ticks,
    st.fixed_dictionaries(
        {},
        optional={
            "edge": edges,
            "edges": st.dictionaries(pairs, edges, max_size=3),
            "send_host": ticks,
            "recv_host": ticks,
            "action_overhead": ticks,
            "overlap": st.booleans(),
            "channel": st.sampled_from(CHANNELS),
            "tail": st.builds(
                Tail, reduce=ticks, clip=ticks, optimizer=ticks, overlap_reduce=st.booleans()
            ),
            "speed": st.dictionaries(
                st.integers(0, 99), fractions.filter(lambda f: f > 0), max_size=3
            ),
        },
    ),
)
def test_what_is_written_reads_back_equal(stages, unit, settings):
    costs = Costs(stages=tuple(stages), unit=unit[0], ticks_per_unit=unit[1], **settings)
    assert parse_costs(format_costs(costs, rows="layers")) == costs


def test_notes_are_kept_for_people(tmp_path):
    costs = parse_costs(EXAMPLE)
    dump_costs(
        tmp_path / "c.json",
        costs,
        rows="layers",
        notes={"machine": "this one"},
        row_notes=[{"spread": {"forward": 0.02}}],
    )
    text = (tmp_path / "c.json").read_text()
    assert '"machine": "this one"' in text
    assert '"forward": 0.02' in text
    assert load_costs(tmp_path / "c.json") == costs


@given(st.text(max_size=30) | st.binary(max_size=30).map(lambda b: b.decode("latin1")))
def test_text_that_is_no_costs_file_is_refused(text):
    with pytest.raises(InputError, match=r"^costs: "):
        parse_costs(text)


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s", "min"])
def test_costs_in_a_unit_of_time_come_back_as_long(unit, tmp_path):
    """What counts one tick a millisecond was read with one tick a second, all times 0."""
    costs = Costs.uniform(linear(2), forward=1, backward=2, unit=unit)
    dump_costs(tmp_path / "c.toml", costs)
    again = load_costs(tmp_path / "c.toml")
    assert again.unit == "s"
    assert Fraction(again.stages[0].forward.total, again.ticks_per_unit) == SECONDS[unit]


PAGE = (Path(__file__).parents[1] / "docs" / "costs.md").read_text(encoding="utf-8")


def test_the_page_tells_of_every_key():
    """The format stood in a module's docstring, which no page and no help showed."""
    told = set(re.findall(r"`(\w+)(?: = \w+)?`", PAGE))
    assert {*KEYS, *ROW_KEYS, *TAIL_TIMES, "overlap_reduce", *EDGE, *CLASSES, *PARTS} - told == {
        "layers", "stages"
    }  # fmt: skip
    assert set(CHANNELS) <= told
    assert "[[layers]]" in PAGE
    assert "[[stages]]" in PAGE


def test_the_example_of_the_page():
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    costs = parse_costs(example)
    assert [row.name for row in costs.stages] == ["embedding", "block", "head"]
    assert costs.edge_between(0, 1).latency == 10_000
    assert costs.edge_between(3, 4).latency == 25_000
