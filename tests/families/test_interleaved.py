"""Interleaving: Megatron's and PyTorch's rule, their closed forms, and the zero-bubble variant."""

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.families.peaks import peaks

from unbubble.action import Kind
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import family, generate
from unbubble.simulate import simulate

TIME = st.integers(1, 12)
MEGATRON = family("interleaved-1f1b")


def idle(schedule, **times):
    """Makespan less the work of a rank, in the unit of the times."""
    timeline = simulate(schedule, Costs.uniform(schedule.placement, **times))
    assert len(set(timeline.work)) == 1
    return Fraction(timeline.makespan - timeline.work[0], timeline.ticks_per_unit)


def legal(rule, ranks, microbatches, **options):
    try:
        MEGATRON.check(ranks, microbatches, 2, rule=rule, **options)
    except InputError:
        return False
    return True


def ahead(schedule, rank):
    """Forwards before the first backward; the one of its own turn is not ahead."""
    kinds = [action.kind for action in schedule.actions(rank)]
    return kinds.index(Kind.B) - 1


def test_chunk_forwards_ahead_on_four_ranks_with_two_stages_each():
    schedule = generate("interleaved-1f1b", 4, 8, 2, rule="megatron")
    assert [ahead(schedule, rank) for rank in range(4)] == [10, 8, 6, 4]


def test_what_pytorch_takes_on_four_ranks():
    assert [m for m in range(1, 13) if legal("pytorch", 4, m)] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12]


def test_what_megatron_takes_on_four_ranks():
    assert [m for m in range(1, 17) if legal("megatron", 4, m)] == [4, 8, 12, 16]
    assert [g for g in range(1, 8) if legal("megatron", 4, 6, group=g)] == [6]
    assert [g for g in range(1, 11) if legal("megatron", 4, 9, group=g)] == [5, 9]
    assert not any(legal("megatron", 6, 3, group=g) for g in range(1, 8))


def test_microbatches_need_not_be_a_multiple_of_the_stages():
    assert legal("megatron", 4, 4)
    assert legal("pytorch", 4, 12)


@pytest.mark.parametrize(
    ("ranks", "microbatches", "options", "words"),
    [
        (4, 9, {}, ["PyTorch's rule", "rounds", "= 2", "nearest m that work: 8 or 10"]),
        (4, 6, {"rule": "megatron"}, ["Megatron's rule", "not 2", "group = 6 would do", "4 or 8"]),
        (6, 3, {"rule": "megatron"}, ["the group, 6, is from p to m", "nearest m that work: 6"]),
        (4, 8, {"group": 3}, ["the group, 3, is from p to m", "group = 4 would do"]),
        (4, 8, {"rule": "deepspeed"}, ["'deepspeed'", "pytorch and megatron"]),
        (4, 8, {"group": 0}, ["group is 0", "at least 1"]),
        (4, 8, {"group": "four"}, ["'four'", "number"]),
        (4, 8, {"rule": "pytorch", "group": 4}, ["the group is Megatron's"]),
    ],
)
def test_refusals_name_the_rule_and_what_works(ranks, microbatches, options, words):
    with pytest.raises(InputError) as error:
        generate("interleaved-1f1b", ranks, microbatches, 2, **options)
    assert [word for word in words if word not in str(error.value)] == []


def test_a_group_alone_means_megatrons_rule():
    assert generate("interleaved", 4, 10, group=5) == generate(
        "interleaved", 4, 10, rule="megatron", group=5
    )


def test_a_smaller_last_group():
    """Megatron's example: two ranks, five microbatches in groups of three, two stages a rank."""
    schedule = generate("interleaved-1f1b", 2, 5, 2, group=3)
    forwards = [a for a in schedule.actions(0) if a.kind is Kind.F]
    assert [a.microbatch for a in forwards] == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert [a.stage // 2 for a in forwards] == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 20), TIME, TIME)
def test_both_rules_agree_where_p_divides_m(p, v, m, F, B):
    assume(m % p == 0)
    schedule = generate("interleaved-1f1b", p, m, v, rule="pytorch")
    assert schedule == generate("interleaved-1f1b", p, m, v, rule="megatron")
    assert idle(schedule, forward=F, backward=B) == Fraction((p - 1) * (F + B), v)
    expected = [min(p + Fraction(p - 1 - 2 * r, v), m) for r in range(p)]
    assert peaks(schedule) == expected


@given(st.integers(1, 8), st.integers(1, 20))
def test_one_stage_a_rank_is_eager_1f1b(p, m):
    assume(legal("pytorch", p, m))
    assert generate("interleaved", p, m, 1).codes == generate("eager-1f1b", p, m).codes


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 20), TIME, TIME, st.data())
def test_the_bubble_of_any_legal_group(p, v, m, F, B, data):
    """(p−1)(F+B)/v from m = p on, whatever the group; below, each further round waits for p."""
    name = data.draw(st.sampled_from(["interleaved-1f1b", "looped-bfs"]))
    options = {}
    if name == "interleaved-1f1b":
        if m >= p and data.draw(st.booleans()):
            options["group"] = data.draw(st.integers(p, m))
        try:
            family(name).check(p, m, v, **options)
        except InputError:
            assume(False)
    rounds_wait = (v - 1) * max(p - m, 0)
    expected = Fraction((rounds_wait + p - 1) * (F + B), v)
    assert idle(generate(name, p, m, v, **options), forward=F, backward=B) == expected


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 15), TIME, TIME, TIME)
def test_interleaved_zero_bubble(p, v, more, F, I, W):
    W, m = min(F, I, W), p + more
    assume(m % (m // p) == 0)
    schedule = generate("interleaved-zb", p, m, v)
    expected = Fraction((p - 1) * (F + I - W), v)
    assert idle(schedule, forward=F, backward_input=I, backward_weight=W) == expected
    if m % p == 0:
        assert peaks(schedule) == [p] * p


@pytest.mark.parametrize("name", ["interleaved-zb", "InterleavedZeroBubble"])
def test_interleaved_zero_bubble_keeps_pytorchs_rule(name):
    with pytest.raises(InputError, match=r"PyTorch's rule.*8 or 10"):
        generate(name, 4, 9)
