"""The textbook's figures, and the closed forms against the exact simulation."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.families.peaks import peaks

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.simulate import simulate

TIME = st.integers(1, 12)
RANKS = st.integers(1, 8)


def timeline_of(schedule, **times):
    return simulate(schedule, Costs.uniform(schedule.placement, **times))


def makespan(name, ranks, microbatches, virtual=None, *, options=None, **times):
    """In the caller's unit, exactly."""
    schedule = generate(name, ranks, microbatches, virtual, **(options or {}))
    timeline = timeline_of(schedule, **times)
    return Fraction(timeline.makespan, timeline.ticks_per_unit)


def percent(fraction):
    return f"{float(fraction):.1%}"


@pytest.mark.parametrize(("name", "expected"), [("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1])])
def test_four_ranks_eight_microbatches(name, expected):
    schedule = generate(name, 4, 8)
    timeline = timeline_of(schedule, forward=1, backward=2)
    assert timeline.makespan == 33
    assert percent(timeline.bubble_fraction) == "27.3%"
    assert peaks(schedule) == expected


@pytest.mark.parametrize(
    ("microbatches", "bubble"), [(4, "42.9%"), (8, "27.3%"), (16, "15.8%"), (32, "8.6%")]
)
def test_more_microbatches_less_bubble(microbatches, bubble):
    timeline = timeline_of(generate("1f1b", 4, microbatches), forward=1, backward=2)
    assert percent(timeline.bubble_fraction) == bubble


def test_eight_ranks_thirty_two_microbatches():
    assert makespan("1f1b", 8, 32, forward=1, backward=1) == 78
    assert makespan("gpipe", 8, 32, forward=1, backward=1) == 78


@pytest.mark.parametrize(
    ("rank", "order"),
    [
        (0, "F0 F1 F2 F3 B0 B1 B2 B3"),
        (1, "F0 F1 F2 B0 F3 B1 B2 B3"),
        (2, "F0 F1 B0 F2 B1 F3 B2 B3"),
        (3, "F0 B0 F1 B1 F2 B2 F3 B3"),
    ],
)
def test_the_order_of_1f1b_as_a_real_run_prints_it(rank, order):
    actions = generate("1f1b", 4, 4).actions(rank)
    assert " ".join(str(a).removeprefix(str(rank)) for a in actions) == order


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["gpipe", "1f1b", "eager-1f1b"]), RANKS, st.integers(1, 20), TIME, TIME)
def test_one_stage_a_rank_with_a_flush(name, p, m, F, B):
    assert makespan(name, p, m, forward=F, backward=B) == (m + p - 1) * (F + B)
    bubble = timeline_of(generate(name, p, m), forward=F, backward=B).bubble_fraction
    assert bubble == Fraction(p - 1, m + p - 1)


@settings(max_examples=50, deadline=None)
@given(RANKS, TIME, TIME)
def test_naive(p, F, B):
    timeline = timeline_of(generate("naive", p, 1), forward=F, backward=B)
    assert timeline.bubble_fraction == Fraction(p - 1, p)


@settings(max_examples=50, deadline=None)
@given(RANKS, st.integers(1, 20))
def test_microbatches_in_flight(p, m):
    ranks = range(p)
    assert peaks(generate("gpipe", p, m)) == [m] * p
    assert peaks(generate("looped-bfs", p, m, 3)) == [m] * p
    assert peaks(generate("1f1b", p, m)) == [min(p - r, m) for r in ranks]
    assert peaks(generate("pipedream", p, m)) == [min(p - r, m) for r in ranks]
    assert peaks(generate("eager-1f1b", p, m)) == [min(2 * (p - r) - 1, m) for r in ranks]


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 6), st.integers(1, 12), TIME, TIME, st.data())
def test_eager_1f1b_hides_transfers_up_to_half_a_turn(p, m, F, B, data):
    """All but those of fill and drain; 1F1B does not."""
    c = data.draw(st.integers(0, (F + B) // 2))
    eager = makespan("eager-1f1b", p, m, forward=F, backward=B, p2p=c)
    assert eager == (m + p - 1) * (F + B) + 2 * (p - 1) * c
    assert eager <= makespan("1f1b", p, m, forward=F, backward=B, p2p=c)


def test_1f1b_waits_for_transfers_again_and_again():
    eager, plain = (
        makespan(name, 4, 64, forward=10, backward=20, p2p=4) for name in ("eager-1f1b", "1f1b")
    )
    assert (eager, plain) == (67 * 30 + 24, 67 * 30 + 400)


def test_naive_is_one_microbatch():
    with pytest.raises(InputError) as error:
        generate("naive", 4, 2)
    assert "not cut into microbatches" in str(error.value)
    assert "the nearest m that work: 1" in str(error.value)
