"""The closed forms: published values, and the simulation wherever their assumptions hold."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import family, generate
from unbubble.formulas import (
    FORMS,
    Times,
    bubble_fraction,
    bubble_overhead,
    bubble_time,
    deepspeed_buffers,
    deepspeed_steps,
    fraction_of_time,
    imbalance_factor,
    interleaved_warmup,
    microbatches_for,
    most_microbatches,
    peak_in_flight,
    utilization_first_order,
)
from unbubble.simulate import simulate


def simulated(name, p, m, v=None, *, times=None):
    times = times or Times()
    schedule = generate(name, p, m, v)
    costs = Costs.uniform(
        schedule.placement,
        forward=times.forward,
        backward_input=times.backward_input,
        backward_weight=times.backward_weight,
        overlapped=times.overlapped_measured,
    )
    return simulate(schedule, costs)


@pytest.mark.parametrize(
    ("p", "target", "m"),
    [
        (4, "20%", 12),
        (8, "20%", 28), (8, "10%", 63), (8, "5%", 133),
        (16, "20%", 60), (16, "10%", 135), (16, "5%", 285),
    ],
)  # fmt: skip
def test_microbatches_for_a_target(p, target, m):
    beta = Fraction(int(target[:-1]), 100)
    assert microbatches_for(beta, p) == microbatches_for(float(beta), p) == m
    assert bubble_fraction(p, m) <= beta < bubble_fraction(p, m - 1)


@given(st.fractions(Fraction(1, 1000), Fraction(999, 1000)), st.integers(1, 64), st.integers(1, 8))
def test_microbatches_for_a_target_are_the_fewest(beta, p, v):
    m = microbatches_for(beta, p, v)
    assert bubble_fraction(p, m, v) <= beta
    assert m == 1 or bubble_fraction(p, m - 1, v) > beta


@given(st.fractions(Fraction(1, 1000), Fraction(999, 1000)), st.integers(1, 64), st.integers(1, 8))
def test_the_most_microbatches_with_a_bubble(beta, p, v):
    m = most_microbatches(beta, p, v)
    assert bubble_fraction(p, m + 1, v) < beta
    assert m == 0 or bubble_fraction(p, m, v) >= beta


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "eager-1f1b"])
@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 3), (4, 8), (5, 2)])
def test_one_stage_a_rank_is_as_simulated(name, p, m):
    times = Times(Fraction(3), Fraction(2), Fraction(5))
    timeline = simulated(name, p, m, times=times)
    assert timeline.bubble_fraction == bubble_fraction(p, m)
    assert timeline.bubble_overhead == bubble_overhead(p, m)
    assert timeline.idle == (bubble_time(name, p, times),) * p


@pytest.mark.parametrize("name", ["interleaved-1f1b", "looped-bfs"])
@pytest.mark.parametrize(("p", "m", "v"), [(2, 2, 2), (4, 8, 2), (4, 4, 3), (3, 9, 4)])
def test_several_stages_a_rank_are_as_simulated(name, p, m, v):
    times = Times(Fraction(12), Fraction(24), Fraction(12))
    timeline = simulated(name, p, m, v, times=times)
    assert timeline.bubble_fraction == bubble_fraction(p, m, v)
    assert timeline.bubble_overhead == bubble_overhead(p, m, v)
    assert timeline.idle == (bubble_time(name, p, times, v),) * p


@pytest.mark.parametrize(
    ("name", "p", "m", "v"),
    [
        ("dualpipe", 4, 8, 1),
        ("dualpipe", 8, 20, 1),
        ("dualpipe-v", 2, 4, 2),
        ("dualpipe-v", 4, 9, 2),
    ],
)
def test_dualpipe_is_as_simulated(name, p, m, v):
    times = Times(Fraction(v), Fraction(v), Fraction(v), overlapped_measured=Fraction(3 * v))
    timeline = simulated(name, p, m, times=times)
    assert min(timeline.idle) == bubble_time(name, p, times, v)


def test_naive_is_as_simulated():
    assert simulated("naive", 4, 1).bubble_fraction == Fraction(3, 4)
    assert bubble_fraction(4, 1) == Fraction(3, 4)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_chimera_is_as_published_and_as_simulated(p):
    """`bubble` had no closed form for it."""
    for times, work in ((Times(Fraction(2)), 2 * p), (Times(), Fraction(3 * p, 2))):
        idle = bubble_time("chimera", p, times, microbatches=p)
        fraction, _ = fraction_of_time(idle, p, times)
        assert fraction == Fraction(p - 2) / (work + p - 2)
        assert simulated("chimera", p, p, times=times).bubble_fraction == fraction


@pytest.mark.parametrize("name", ["zb-h1", "zb-h2"])
@pytest.mark.parametrize("parts", [(1, 1, 1), (10, 11, 9), (10, 8, 9), (5, 7, 3)])
def test_zero_bubble_is_as_simulated(name, parts):
    times = Times(*map(Fraction, parts))
    timeline = simulated(name, 4, 12, times=times)
    idle = bubble_time(name, 4, times)
    assert timeline.span - max(timeline.work) == idle
    if name == "zb-h1" and times.backward_weight <= times.backward_input:
        assert timeline.idle == (idle,) * 4


@pytest.mark.parametrize("name", FORMS)
def test_a_form_that_says_it_is_exact_is(name):
    """ZB-H1 said "m ≥ p", and with W > F the pipeline idles longer than (p−1)(F+I−W)."""
    seen = 0
    for p, m, *parts in product(
        (2, 4), (1, 3, 4, 5, 8, 9, 10, 12, 14), (1, 3, 4), (1, 2, 3), (1, 2, 4)
    ):
        times = Times(*map(Fraction, parts))
        try:
            v = family(name).check(p, m)
        except InputError:
            continue
        if FORMS[name].exact(p, m, times):
            timeline = simulated(name, p, m, times=times)
            whole = timeline.makespan if FORMS[name].metric == "makespan" else timeline.span
            idle = Fraction(whole - max(timeline.work), timeline.ticks_per_unit)
            assert idle == bubble_time(name, p, times, v, m), (p, m, parts)
            seen += 1
    assert seen >= 5


def test_bubble_times_of_the_zero_bubble_schedules():
    times = Times(Fraction(10), Fraction(11), Fraction(9))
    assert bubble_time("zb-h1", 8, times) == 7 * (10 + 11 - 9)
    assert bubble_time("zb-h2", 8, times) == 7 * (10 + 11 - 18)
    assert bubble_time("zb-h2", 8, times._replace(backward_weight=Fraction(20))) == 0
    assert fraction_of_time(Fraction(30), 3, times) == (Fraction(1, 4), Fraction(1, 3))


@pytest.mark.parametrize("name", sorted(set(FORMS) - {"chimera", "v-half", "v-min"}))
def test_one_rank_has_no_bubble(name):
    assert bubble_time(name, 1, Times(), microbatches=1) == 0


@pytest.mark.parametrize(
    ("schedule", "held"),
    [("gpipe", 32), ("1f1b", 8), ("interleaved-1f1b", Fraction(23, 2)), ("zb-h1", 8),
     ("zb-h2", 15), ("v-half", 5), ("v-min", 4), ("dualpipe-v", Fraction(17, 2)), ("naive", 1)],
)  # fmt: skip
def test_microbatches_in_flight(schedule, held):
    assert peak_in_flight(schedule, 8, 32, 2) == held
    assert peak_in_flight(schedule, 8, 1, 2) == 1


def test_deepspeeds_counts():
    assert deepspeed_steps(4, 8) == 22
    assert [deepspeed_buffers(4, 8, s) for s in range(4)] == [4, 3, 2, 2]


@pytest.mark.parametrize(("p", "v", "m"), [(4, 2, 8), (8, 3, 16), (2, 4, 4)])
def test_interleaved_warmup_is_that_of_the_generated_order(p, v, m):
    schedule = generate("interleaved-1f1b", p, m, v)
    for rank in range(p):
        kinds = "".join(action.kind.name for action in schedule.actions(rank))
        # 1F1B begins with a forward
        assert kinds.index("B") - 1 == min(interleaved_warmup(p, v, rank), v * m - 1)


def test_first_order_of_uneven_loads():
    loads = [Fraction(x) for x in (9, 12, 7, 12)]
    assert imbalance_factor(loads) == Fraction(12, 10)
    assert utilization_first_order(loads, 8) == Fraction(8, 11) / Fraction(12, 10)
    assert imbalance_factor([Fraction(0)]) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bubble_fraction(0, 4), r"p \(ranks\) is 0; it is at least 1"),
        (lambda: bubble_fraction(4, 0), r"m \(microbatches\) is 0"),
        (lambda: bubble_overhead(4, 4, 0), r"v \(virtual stages\) is 0"),
        (lambda: microbatches_for(Fraction(0), 4), "a bubble fraction of 0 cannot be met"),
        (lambda: microbatches_for(Fraction(1), 4), "a bubble fraction of 1 cannot be met"),
        (lambda: bubble_time("zb-1p", 4, Times()), "no closed form for the bubble of 'zb-1p'"),
        (lambda: bubble_time("v-half", 2, Times(), 2, 8), "only with .* p > 2, m ≥ 2p, F = I = W"),
        (lambda: bubble_time("zb-v", 4, Times()), "zb-v idles 0 by closed form only with equal"),
        (lambda: bubble_time("zb-v", 4, Times(), 2, 6), "m ≥ 2p−1, F = I = W; `unbubble simulate`"),
        (lambda: bubble_time("zb-v", 4, Times(Fraction(2)), 2, 8), "only with .* F = I = W"),
        (lambda: bubble_time("chimera", 4, Times(), 1, 8), "only with .* p even, m = p, B = F or"),
        (lambda: bubble_time("chimera", 3, Times(), 1, 3), "only with .* p even"),
        (lambda: bubble_time("chimera", 4, Times(Fraction(3)), 1, 4), "B = F or B = 2F"),
        (lambda: peak_in_flight("x", 4, 4), "no closed form for the memory of 'x'; known are"),
    ],
)  # fmt: skip
def test_what_has_no_answer_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(("name", "sizes"), [("v-half", range(3, 14)), ("v-min", range(2, 14))])
def test_the_forms_of_less_memory_hold_for_every_number_of_ranks(name, sizes):
    """`schedule list` gave them, and `bubble` knew of none."""
    for p in sizes:
        timeline = simulated(name, p, 2 * p)
        idle = Fraction(min(timeline.idle), timeline.ticks_per_unit)
        assert idle == bubble_time(name, p, Times(), 2, 2 * p)


@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 2), (4, 10, 3), (3, 8, 4), (8, 8, 1)])
def test_interleaved_zero_bubble_is_as_simulated(p, m, v):
    """`schedule list` gave the form, and `bubble` knew of none."""
    times = Times(Fraction(5), Fraction(6), Fraction(4))
    timeline = simulated("interleaved-zb", p, m, v, times=times)
    idle = bubble_time("interleaved-zb", p, times, v)
    assert Fraction(min(timeline.idle), timeline.ticks_per_unit) == idle == Fraction(7 * (p - 1), v)
