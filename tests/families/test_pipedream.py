"""PipeDream: versions of the weights and staleness of the updates, without a flush."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.families.pipedream import staleness, weight_versions
from unbubble.schedule import Schedule, format_csv


@given(st.integers(1, 8), st.integers(0, 10))
def test_the_steady_state_needs_a_version_for_every_rank_to_the_end(p, more):
    schedule = generate("pipedream", p, 2 * p + more)
    assert weight_versions(schedule) == tuple(p - r for r in range(p))
    for rank, behind in enumerate(staleness(schedule)):
        assert len(behind) == schedule.microbatches
        assert behind[p:] == (p - 1 - rank,) * (schedule.microbatches - p)
        assert max(behind) == p - 1 - rank


def test_the_first_updates_are_less_behind():
    assert staleness(generate("pipedream", 4, 8)) == (
        (0, 1, 2, 3, 3, 3, 3, 3),
        (0, 1, 2, 2, 2, 2, 2, 2),
        (0, 1, 1, 1, 1, 1, 1, 1),
        (0, 0, 0, 0, 0, 0, 0, 0),
    )


def test_a_split_backward_updates_with_its_weight_gradient():
    rows = [["0F0", "0F1", "0I0", "0I1", "0W0", "0W1", "0F2", "0I2", "0W2"]]
    schedule = Schedule.of(rows, flush=False)
    assert staleness(schedule) == ((0, 1, 0),)
    assert weight_versions(schedule) == (2,)


def test_a_flush_leaves_one_version_and_no_staleness():
    schedule = generate("1f1b", 4, 8)
    assert weight_versions(schedule) == (1, 1, 1, 1)
    assert staleness(schedule) == ((0,),) * 4


def test_it_is_1f1b_without_a_flush_and_no_csv_can_say_that():
    schedule = generate("pipedream", 4, 8)
    assert schedule.codes == generate("1f1b", 4, 8).codes
    assert schedule != generate("1f1b", 4, 8)
    with pytest.raises(InputError, match="never flushes"):
        format_csv(schedule)
