"""The check agrees with its oracle on random schedules and on what went wrong with them."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import proof
from tests.strategies import garbled, mutated, mutations, random_schedule, schedules

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.schedule import format_csv, parse_csv
from unbubble.schedule.check import SENDS, check, check_rows, grid
from unbubble.schedule.lowering import RECEIVES, compute_only, lower
from unbubble.schedule.pytorch_csv import parse_rows
from unbubble.simulate import simulate


def agree(schedule, send):
    """Assert that our faults and blocked actions are the oracle's; returns the report."""
    rows = [list(schedule.actions(rank)) for rank in range(schedule.ranks)]
    report = check(schedule, send)
    expected = proof.faults(rows, schedule.placement, schedule.flush)
    assert {tuple(fault[:3]) for fault in report.faults} == expected
    stuck = proof.blocked(rows, schedule.placement, send)
    assert {tuple(action[:2]) for action in report.deadlock} == stuck
    return report


@settings(max_examples=200, deadline=None)
@given(schedules, st.sampled_from(SENDS))
def test_a_complete_schedule_has_no_fault(schedule, send):
    report = agree(schedule, send)
    assert report.faults == ()
    if report.good:
        simulate(schedule, Costs.uniform(schedule.placement))


@settings(max_examples=300, deadline=None)
@given(mutations, st.sampled_from(SENDS))
def test_the_check_is_the_oracles_on_mutations(schedule, send):
    report = agree(schedule, send)
    if not report.good:
        assert ">" in grid(schedule.codes, report.faults or report.deadlock)


def test_the_check_is_the_oracles_on_many_mutations():
    good = 0
    for seed in range(2000):
        rng = random.Random(seed)
        good += agree(mutated(rng, random_schedule(rng)), rng.choice(SENDS)).good
    assert 0 < good < 500


@settings(max_examples=200, deadline=None)
@given(schedules)
def test_lowering_is_taken_back_and_only_just_in_time_can_deadlock(schedule):
    order = compute_only(schedule)
    for receive in RECEIVES:
        lowered = lower(order, receive)
        assert compute_only(lowered) == order
        assert check(lowered, "buffered").good
        if receive != "just-in-time":
            assert check(lowered, "blocking").good
            assert check(lowered, "batched").good


@settings(max_examples=200, deadline=None)
@given(schedules)
def test_a_file_is_the_schedule(schedule):
    if schedule.placement.copies > 1:
        with pytest.raises(InputError, match="copies"):
            format_csv(schedule)
        return
    again = parse_csv(format_csv(schedule))
    assert again == schedule
    assert format_csv(again) == format_csv(schedule)


def test_a_file_gone_wrong_is_judged_or_refused():
    outcomes = {"good": 0, "faults": 0, "refused": 0}
    for seed in range(1000):
        rng = random.Random(seed)
        schedule = random_schedule(rng)
        if schedule.placement.copies > 1:
            continue
        try:
            report = check_rows(parse_rows(garbled(rng, format_csv(schedule))))
            outcomes["good" if report.good else "faults"] += 1
        except InputError:
            outcomes["refused"] += 1
    assert all(outcomes.values()), outcomes
