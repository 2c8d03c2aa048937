"""A measured step beside the plan that it ran."""

from dataclasses import replace

import pytest
from tests.records import write_simulated

from unbubble.attribution import CLASSES
from unbubble.costs import Costs
from unbubble.families import generate
from unbubble.plan import Plan
from unbubble.prediction import predict
from unbubble.trace import read
from unbubble.trace.findings import findings


@pytest.mark.parametrize(("name", "ranks", "m"), [("looped-bfs", 2, 4), ("gpipe", 3, 6)])
def test_a_step_that_went_as_predicted_differs_in_no_class(name, ranks, m, tmp_path):
    """A receive that is posted late lets its transfer come later: in the prediction that was
    communication, in the trace of just that step overhead, up to a fifth of it."""
    order = generate(name, ranks, m)
    costs = Costs.uniform(order.placement, forward=900_000, backward=1_800_000, p2p=300_000)
    stages = tuple(replace(s, forward=s.forward._replace(overhead=20_000)) for s in costs.stages)
    costs = replace(
        costs, stages=stages, send_host=20_000, recv_host=10_000, unit="s", ticks_per_unit=10**9
    )
    plan = Plan(schedule=order, costs=costs, name=name)
    step = predict(order, costs)
    write_simulated(tmp_path, step)
    found = findings(read([tmp_path]), plan)["against_plan"]
    assert found["error"] == pytest.approx(0, abs=1e-9)
    assert list(found["difference"]) == [f"{name}_s" for name in CLASSES]
    for name, seconds in found["difference"].items():
        assert abs(seconds) < 0.002 * step.in_unit(step.length), name
