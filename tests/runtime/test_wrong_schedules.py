"""Schedules that would train another model are caught, before the run and by the gradients."""

import pytest

from unbubble import InputError, RunError, Schedule
from unbubble.runtime.run import Setup, run

TINY = "unbubble.runtime.decoder:tiny"

MISSING_W = [["0F0", "0F1", "0I0", "0I1", "0W0"], ["1F0", "1B0", "1F1", "1B1"]]
SWAPPED_RECEIVES = [
    ["0F0", "0SEND_F0", "0F1", "0SEND_F1", "0RECV_B0", "0B0", "0RECV_B1", "0B1"],
    ["1RECV_F1", "1RECV_F0", "1F0", "1B0", "1SEND_B0", "1F1", "1B1", "1SEND_B1"],
]
SENDS_FIRST = [
    ["0F0", "0SEND_F0", "0F1", "0SEND_F1", "0RECV_B0", "0B0", "0RECV_B1", "0B1"],
    ["1RECV_F0", "1F0", "1B0", "1SEND_B0", "1RECV_F1", "1F1", "1B1", "1SEND_B1"],
]
SWAPPED_FORWARDS = [["0F0", "0F1", "0B0", "0B1"], ["1F1", "1F0", "1B0", "1B1"]]


def run_it(rows, **options):
    return run([Setup(Schedule.of(rows), [4, 4])], TINY, steps=1, warmup=0, **options)[0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (MISSING_W, "0W1 on rank 0: missing"),
        (SWAPPED_RECEIVES, "1RECV_F1 on rank 1: rank 0 sends"),
        (SENDS_FIRST, "deadlocks under blocking sends: 0SEND_F1 on rank 0 waits for 1RECV_F1"),
        (SWAPPED_FORWARDS, "1F1 comes before a lower microbatch of the last stage"),
    ],
)
def test_before_the_run(rows, message):
    with pytest.raises(InputError, match=message):
        run_it(rows)


def test_swapped_microbatches_by_the_gradients():
    setups = [Setup(Schedule.of(rows), [4, 4]) for rows in (SWAPPED_RECEIVES, SWAPPED_FORWARDS)]
    for result in run(setups, TINY, steps=1, warmup=0, prove=False):
        assert result.gradients.largest_difference > 0.1
        assert not result.gradients.equal


def test_a_missing_weight_gradient_by_the_runtime():
    with pytest.raises(RunError, match="I and W must have equal counts"):
        run_it(MISSING_W, prove=False)
