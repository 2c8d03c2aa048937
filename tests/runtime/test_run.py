"""Real runs on two processes; all schedules share one launch, since starting torch is slow."""

import pytest

from unbubble import Schedule, attribute, observed_costs, predict
from unbubble.runtime.run import Setup, run

ONE_F_ONE_B = [
    ["0F0", "0F1", "0B0", "0F2", "0B1", "0F3", "0B2", "0B3"],
    ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2", "1F3", "1B3"],
]
SPLIT_V = [
    ["0F0", "0F1", "3F0", "3I0", "3W0", "0I0", "0W0", "3F1", "3B1", "0B1"],
    ["1F0", "2F0", "1F1", "2F1", "2I0", "2W0", "1I0", "2B1", "1B1", "1W0"],
]


@pytest.fixture(scope="module")
def measured():
    setups = [
        Setup(Schedule.of(ONE_F_ONE_B, name="1f1b"), [4, 4]),
        Setup(Schedule.of(SPLIT_V, name="v"), [2, 2, 2, 2]),
    ]
    return run(setups, "unbubble.runtime.decoder:tiny", steps=2, warmup=1, timeout_s=60)


@pytest.mark.parametrize("which", [0, 1])
def test_gradients_are_those_of_one_process(measured, which):
    gradients = measured[which].gradients
    assert gradients.largest_difference <= 1e-5
    assert gradients.equal
    assert gradients.parameters == 77  # 2 + 6 × 12 + 3


def test_losses_are_near_the_uniform_guess_and_fall(measured):
    first, second = measured[0].losses
    assert 6.5 < second < first < 7.5
    assert measured[1].losses[0] == pytest.approx(first, rel=0.1)


@pytest.mark.parametrize("which", [0, 1])
def test_recorded_actions_follow_one_another(measured, which):
    for step in measured[which].steps:
        assert step.measured
        assert step.schedule.microbatches == (4 if which == 0 else 2)
        for starts, ends in zip(step.starts, step.ends, strict=True):
            assert all(s <= e for s, e in zip(starts, ends, strict=True))
            assert all(e <= s for e, s in zip(ends, starts[1:], strict=False))
        assert 0 < step.makespan < 60 * 10**9


def test_no_input_is_used_before_its_sender_sent_it(measured):
    for step in measured[0].steps:
        ends = {str(e.action): e.end for rank in range(2) for e in step.events(rank)}
        starts = {str(e.action): e.start for rank in range(2) for e in step.events(rank)}
        for i in range(4):
            assert ends[f"0F{i}"] <= starts[f"1F{i}"]
            assert ends[f"1B{i}"] <= starts[f"0B{i}"]


@pytest.mark.parametrize("which", [0, 1])
def test_the_classes_of_every_rank_add_up_to_its_wall_clock(measured, which):
    for step in measured[which].steps:
        for row in attribute(step).ranks:
            assert row.total == step.finish - step.begin
            classes = row.compute + row.bubble + row.imbalance_static + row.imbalance_jitter
            assert classes + row.communication + row.overhead == row.total
            assert row.compute > 0


@pytest.mark.parametrize("which", [0, 1])
def test_observed_costs_predict_the_steps_they_come_from(measured, which):
    steps = measured[which].steps
    predicted = predict(steps[0].schedule, observed_costs(steps))
    shortest, longest = min(s.makespan for s in steps), max(s.makespan for s in steps)
    assert shortest / 2 < predicted.makespan < longest * 1.2
