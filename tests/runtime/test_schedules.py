"""Every schedule that PyTorch can express runs for real from our CSV, in both of its formats.

All schedules of one number of processes share a launch, since starting torch is slow.
"""

import pytest

from unbubble import InputError, format_csv
from unbubble.families import families, generate
from unbubble.runtime.profile import profile
from unbubble.runtime.run import Setup, run
from unbubble.schedule.lowering import lower
from unbubble.schedule.whole_stage import for_pytorch

TINY = "unbubble.runtime.decoder:tiny"
LAYERS = {2: [3, 5], 4: [2, 3, 2, 1], 8: [1] * 8}
NOT_IN_CSV = {"chimera", "dualpipe", "pipedream"}
"""Two copies of a stage, or no flush."""


def expressible(ranks, microbatches):
    found = {}
    for name in families():
        schedule = generate(name, ranks, 1 if name == "naive" else microbatches)
        try:
            format_csv(schedule)
            found[name] = schedule
        except InputError:
            assert name in NOT_IN_CSV
    return found


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 4), (4, 8)])
def test_gradients_are_equal_for_every_schedule(ranks, microbatches):
    schedules = expressible(ranks, microbatches)
    assert len(schedules) >= 9
    setups = {}
    for name, schedule in schedules.items():
        layers = LAYERS[schedule.num_stages]
        setups[name, "compute only"] = Setup(schedule, layers)
        setups[name, "with comms"] = Setup(lower(schedule), layers)
    ran = run(list(setups.values()), TINY, steps=1, warmup=0, timeout_s=60)
    differences = {
        key: result.gradients.largest_difference for key, result in zip(setups, ran, strict=True)
    }
    assert {key: d for key, d in differences.items() if not d <= 1e-5} == {}
    for (name, form), result in zip(setups, ran, strict=True):
        [step] = result.steps
        lowered = lower if form == "with comms" else for_pytorch  # as PyTorch lowers it itself
        assert step.schedule == lowered(schedules[name])


def test_stages_may_end_in_a_view():
    """PyTorch's split backward cannot detach one: "Can't detach views in-place", of nn.Linear over
    three dimensions, ended runs and profiles."""
    setups = [Setup(generate(name, 2, 4, 2), [1] * 4) for name in ("zb-v", "interleaved-1f1b")]
    ran = run(setups, "bad_models:of_views", steps=1, warmup=0, timeout_s=60)
    assert all(one.gradients.equal for one in ran)
    found = profile("bad_models:of_views", processes=1, rounds=2, warmup=0)
    assert len(found.samples.layers) == 4
