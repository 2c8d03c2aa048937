"""Rows from lanes: one action of each running lane a round."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from unbubble.action import Kind, pack
from unbubble.schedule.weave import array_of, run, weave


def slowly(lanes):
    """The same, round by round."""
    rounds = max((delay + len(codes) for codes, delay in lanes), default=0)
    return [
        codes[now - delay]
        for now in range(rounds)
        for codes, delay in lanes
        if delay <= now < delay + len(codes)
    ]


def test_a_run_is_the_codes_of_successive_microbatches():
    assert list(run(Kind.B, 3, 2, 5)) == [pack(Kind.B, 3, i) for i in (2, 3, 4)]
    assert list(run(Kind.F, 0, 4, 4)) == []
    assert run(Kind.F, 1, 0, 9)[::-1][0] == pack(Kind.F, 1, 8)


def test_the_drawing_of_the_module():
    assert list(weave(([0, 1, 2, 3], 0), ([10, 11, 12, 13], 2))) == [0, 1, 2, 10, 3, 11, 12, 13]


LANES = st.lists(st.tuples(st.lists(st.integers(0, 1 << 40), max_size=9), st.integers(0, 12)))


@given(LANES)
def test_weaving_is_round_after_round(lanes):
    assert list(weave(*((array("q", codes), delay) for codes, delay in lanes))) == slowly(lanes)


def test_runs_one_after_another():
    assert array_of([1, 2], [], range(5, 7)) == array("q", [1, 2, 5, 6])
