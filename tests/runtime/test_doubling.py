"""Sweeps for real: what runs in one launch, when it ends, and what the verdict says."""

from itertools import pairwise

import pytest
from tests.sweeps import Runner, apart, costs, plans, swept

from unbubble.errors import InputError, RunError
from unbubble.runtime.doubling import Steps, sweep_run
from unbubble.sweep import verdict
from unbubble.sweep.variant import variant


def test_neighbours_run_in_one_launch_until_a_doubling_does_not_pay():
    runner = Runner()
    rows = swept(runner)
    assert [row.microbatches for row in rows] == [2, 4, 8, 16, 32, 64]
    assert runner.launches == [[2, 4], [4, 8], [8, 16], [16, 32], [32, 64]]
    for row in rows:
        assert row.taken.step_s == pytest.approx(float(row.step)) == (row.microbatches + 1) * 0.003
        assert row.observed == pytest.approx(row.throughput)
    for before, row in pairwise(rows):
        assert row.observed_gain == pytest.approx(row.throughput / before.throughput)
    found = verdict(rows)
    assert (found.stops_at, found.limited_by) == (32, "bubble")
    assert "from m = 32 on a doubling gains less than 2% (observed × 1.015" in found.text
    assert "m = 2 to 64: observed × 1.48, the bubble model predicts × 1.48" in found.text
    assert found.classes["bubble"] == pytest.approx(1 / 33)
    assert found.classes["compute"] == pytest.approx(32 / 33)


def test_a_gain_is_that_of_one_launch_whatever_the_machine_does_between_launches():
    """The second launch is on a machine twice as slow: no gain would be left of row 8."""
    runner = Runner(slower=[{}, {4: 2, 8: 2}])
    rows = swept(runner, 8)
    assert runner.launches == [[2, 4], [4, 8]]
    assert rows[2].observed < rows[1].observed
    assert rows[2].observed_gain == pytest.approx(rows[2].gain)
    assert rows[2].drift == pytest.approx(-0.5)
    found = verdict(rows)
    assert found.limited_by == "bubble"
    assert "from launch to launch the machine changed by up to 50.0%" in found.text


def test_a_launch_that_ends_the_sweep_against_the_prediction_is_made_again():
    once = Runner(slower=[{4: 3}, {}, {2: 3}])
    rows = swept(once, 8)
    assert once.launches == [[2, 4], [2, 4], [2, 4], [4, 8]]
    assert [row.microbatches for row in rows] == [2, 4, 8]
    assert rows[1].observed_gain == pytest.approx(rows[1].gain)
    always = Runner(costs_of=lambda m: costs(m / 2, m))
    rows = swept(always, 8)
    assert always.launches == [[2, 4], [2, 4]]
    assert [row.microbatches for row in rows] == [2, 4]
    assert verdict(rows).stops_at == 2


@pytest.mark.parametrize(
    ("costs_of", "limited_by", "words"),
    [
        (lambda m: costs(1 + m / 20, 2), "compute", "compute, the kernels themselves, grew by"),
        (lambda m: costs(overhead=m / 20), "overhead", "a microbatch's overhead grew by"),
        (
            lambda m: apart(0.8 * m / (m + 16)),
            "imbalance",
            "a microbatch's imbalance grew by",
        ),
    ],
)
def test_what_bends_the_throughput_is_the_class_that_grows(costs_of, limited_by, words):
    found = verdict(swept(Runner(costs_of)))
    assert found.limited_by == limited_by
    assert "not bubble-limited" in found.text
    assert words in found.text


def test_a_constant_overhead_does_not_bend_it():
    """Every action takes half as long again: the level is another one, the gains are the same."""
    found = verdict(swept(Runner(lambda m: costs(overhead=0.75))))
    assert found.limited_by == "bubble"
    assert found.classes["overhead"] == pytest.approx(1 / 3, abs=0.01)


def test_more_than_the_bubble_gives():
    found = verdict(swept(Runner(lambda m: costs(8 / (m + 6), 16 / (m + 6))), 16))
    assert found.limited_by == "compute"
    assert "more than the bubble gives: a microbatch's compute" in found.text


def test_what_does_not_fit_is_not_run():
    # gpipe holds m microbatches of one MiB
    found = variant(plans(4, "gpipe")[0])
    runner = Runner()
    rows = list(
        sweep_run(
            [found.with_microbatches(m) for m in (2, 4, 8, 16)],
            Steps(target="m:f", run=runner, steps=1),
            memory_bytes=4 * 2**20,
        )
    )
    assert runner.launches == [[2, 4]]
    assert [(row.fits, row.taken is None) for row in rows] == [(True, False)] * 2 + [(False, True)]
    assert (verdict(rows).stops_at, verdict(rows).limited_by) == (4, "memory")
    assert "m = 8 does not fit: the fullest rank would hold 8 MiB" in verdict(rows).text
    with pytest.raises(InputError, match="m = 2 already holds 2 MiB"):
        swept(Runner(), memory_bytes=2**20)


def test_a_single_m_is_run_alone():
    runner = Runner()
    [row] = swept(runner, 2)
    assert runner.launches == [[2]]
    assert row.observed_gain is None
    assert "only m = 2 was run" in verdict([row]).text


def test_a_lost_rank_leaves_the_rows_that_are_finished():
    def costs_of(m):
        if m > 4:
            raise RunError("rank 1 was lost")
        return costs()

    found = []
    rows = sweep_run(plans(), Steps(target="m:f", run=Runner(costs_of)))
    with pytest.raises(RunError, match="rank 1 was lost"):
        found += (row.microbatches for row in rows)
    assert found == [2, 4]
