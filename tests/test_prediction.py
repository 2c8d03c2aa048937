from unbubble import Costs, Duration, Schedule, StageCosts, lower, predict
from unbubble.families import generate
from unbubble.prediction import as_pytorch_runs
from unbubble.trace.costs import observed_costs

STAGE = StageCosts(
    forward=Duration(100),
    backward_input=Duration(120),
    backward_weight=Duration(90),
    backward=Duration(200),
)


def costs(stages, **settings):
    return Costs(stages=(STAGE,) * stages, unit="s", ticks_per_unit=10**9, **settings)


def test_the_first_stage_has_no_input_gradient_and_its_w_is_the_full_backward():
    first, second = as_pytorch_runs(costs(2)).stages
    assert (first.backward_input, first.backward_weight) == (Duration(0), Duration(200))
    assert first.backward == Duration(200)
    assert second == STAGE
    assert as_pytorch_runs(as_pytorch_runs(costs(2))) == as_pytorch_runs(costs(2))


def test_a_stage_without_a_full_backward_has_the_sum():
    stage = StageCosts(backward_input=Duration(3), backward_weight=Duration(4))
    [first] = as_pytorch_runs(Costs(stages=(stage,))).stages
    assert (first.backward_input, first.backward_weight) == (Duration(0), Duration(7))


def test_costs_without_any_backward_stay_as_they_are():
    bare = Costs(stages=(StageCosts(forward=Duration(3)),))
    assert as_pytorch_runs(bare) == bare


def test_sends_and_receives_are_simulated_with_their_host_time():
    order = Schedule.of([["0F0", "0B0"], ["1F0", "1B0"]])
    # F, send, F, B, send, B on the path; each receive is posted before its data are sent
    assert predict(order, costs(2, send_host=10, recv_host=1)).makespan == 2 * (100 + 200) + 2 * 10


def test_observed_costs_of_a_simulated_step_predict_another_schedule_exactly():
    known = costs(4, send_host=7, recv_host=3, action_overhead=5)
    seen = predict(generate("zb-v", 2, 4), known)
    found = observed_costs([seen])
    assert (found.send_host, found.recv_host) == (7, 3)
    for stage in range(1, 4):
        assert found.stages[stage].forward == Duration(100, overhead=5)
        assert found.stages[stage].backward_input == Duration(120, overhead=5)
        assert found.stages[stage].backward is None
    order = lower(generate("zb-v", 2, 16))
    assert predict(order, found).makespan == predict(order, known).makespan
