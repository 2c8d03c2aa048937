"""Clocks from causality: what the bounds allow, what contradicts, what nothing bounds."""

from hypothesis import given
from hypothesis import strategies as st

from unbubble.trace.clocks import align


def test_a_round_trip_bounds_a_clock_from_both_sides():
    # rank 1's clock is 1000 ahead; each way takes 10
    clocks = align(2, [(0, 0, 1, 1010), (1, 1020, 0, 30)])
    assert clocks.offsets == (0, -1000)
    assert clocks.uncertainty == 10


def test_clocks_of_one_machine_stay_as_they_are():
    assert align(2, [(0, 0, 1, 10), (1, 20, 0, 30)], same_clock=True).offsets == (0, 0)
    assert align(2, [(0, 0, 1, 1010), (1, 1020, 0, 30)], same_clock=True).offsets == (0, -1000)


def test_one_way_bounds_one_side_only():
    clocks = align(2, [(0, 1000, 1, 10)])
    assert clocks.uncertainty is None
    assert clocks.offsets[1] >= 990


def test_a_contradiction_is_measured():
    # each was received 100 before it was sent, whatever the offset
    clocks = align(2, [(0, 0, 1, -100), (1, 0, 0, -100)])
    assert clocks.contradiction == 100
    assert abs(clocks.offsets[1]) <= 100


@given(
    st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**4)), min_size=1, max_size=20),
)
def test_the_true_offset_is_within_the_uncertainty(apart, hops):
    """Along a line of ranks, with messages both ways at any times and delays."""
    true = [0, *apart]
    orders = []
    for i, (at, delay) in enumerate(hops):
        for rank in range(len(apart)):
            ends = (rank, rank + 1) if (i + rank) % 2 else (rank + 1, rank)
            for a, b in (ends, ends[::-1]):
                orders.append((a, at + true[a], b, at + delay + true[b]))
    clocks = align(len(true), orders)
    assert clocks.contradiction == 0
    for own, ahead in zip(clocks.offsets, true, strict=True):
        assert abs(own + ahead) <= clocks.uncertainty
    for a, sent, b, received in orders:
        assert sent + clocks.offsets[a] <= received + clocks.offsets[b] + 1
