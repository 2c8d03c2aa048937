"""Costs of measured steps: means, so that what is predicted from them adds up to the step."""

from array import array
from dataclasses import replace

import pytest

from unbubble import Costs, InputError, Schedule, observed_costs, simulate
from unbubble.action import Kind, parse
from unbubble.costs import Duration, Edge, StageCosts, Tail
from unbubble.families import generate
from unbubble.simulate import Transfer
from unbubble.trace.costs import usual

SPLIT = [["0F0", "0F1", "0I0", "0W0", "0I1", "0W1"]]


def measured(rows, times, **parts):
    """A timeline of one action after another; the same times on every rank."""
    schedule = Schedule.of(rows)
    ends = [array("q") for _ in rows]
    for row in ends:
        for time in times:
            row.append((row[-1] if row else 0) + time)
    starts = [array("q", (e - t for e, t in zip(row, times, strict=True))) for row in ends]
    like = simulate(schedule, Costs.uniform(schedule.placement))
    return replace(like, starts=tuple(starts), ends=tuple(ends), finish=max(ends[0]), **parts)


def test_a_late_action_counts_since_the_step_is_a_sum():
    step = measured([["0F0", "0F1", "0F2", "0B0", "0B1", "0B2"]], [10, 10, 70, 20, 20, 50])
    costs = observed_costs([step])
    assert (costs.stages[0].forward.total, costs.stages[0].backward.total) == (30, 30)
    assert simulate(step.schedule, costs).makespan == step.makespan == 180
    [forward, backward] = usual([step])
    assert (forward.times, forward.least, forward.median, forward.most) == (3, 10, 10, 70)
    assert (backward.parts, backward.kind.name) == (Duration(20), "B")


def test_a_step_that_something_held_up_changes_nothing():
    """Two processes of a busy machine stood still for seconds in one step of twelve, and steps that
    were predicted from the mean of all twelve came out a third too long."""
    rows, still = [["0F0", "0F1", "0B0", "0B1"]], [10, 30_000, 20, 50]
    steps = [
        measured(rows, [10, 12, 20, 20]),
        measured(rows, still),
        measured(rows, [14, 12, 22, 20]),
    ]
    stage = observed_costs(steps).stages[0]
    assert (stage.forward.total, stage.backward.total) == (13, 21)


def test_the_parts_of_a_duration_are_kept_apart():
    step = measured(
        SPLIT,
        [10, 20, 10, 10, 10, 10],
        communication=(array("q", [2, 4, 0, 0, 0, 0]),),
        overhead=(array("q", [1, 3, 0, 0, 0, 0]),),
    )
    stage = observed_costs([step]).stages[0]
    assert stage.forward == Duration(10, 3, 2)
    assert (stage.backward, stage.backward_weight) == (None, Duration(10))


def test_a_gap_in_front_of_one_action_is_not_every_action_s():
    """Of the actions that waited for nothing those that began at once had not counted: where
    Megatron's exchanges of 300 µs follow every other action, a step was predicted 23 % too long."""
    step = measured([["0F0", "0F1", "0F2", "0B0", "0B1", "0B2"]], [10, 10, 10, 20, 20, 20])
    later = step.ends[0]
    later[4:] = array("q", [end + 30 for end in later[4:]])
    step.starts[0][4:] = array("q", [start + 30 for start in step.starts[0][4:]])
    assert observed_costs([step]).action_overhead == 30 // 5


def test_recompute_is_apart_from_the_backward_that_it_is_in():
    """A B and an I of one stage share it, so that neither gets longer; a W keeps its own."""
    step = measured(
        [["0F0", "0F1", "0B0", "0I1", "0W1"]],
        [10, 10, 50, 40, 20],
        recompute=(array("q", [0, 0, 11, 9, 8]),),
    )
    stage = observed_costs([step]).stages[0]
    assert (stage.recompute, stage.backward_weight) == (Duration(9), Duration(20))
    assert (stage.backward, stage.backward_input) == (Duration(41), Duration(31))
    assert (stage.of(Kind.B), stage.of(Kind.I)) == (Duration(50), Duration(40))
    assert [row.recompute for row in usual([step])] == [0, 11, 9, 8]
    assert simulate(step.schedule, observed_costs([step])).makespan == step.makespan


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dualpipe-v", "dualpipe", "interleaved-1f1b"])
def test_costs_of_a_simulated_step_are_those_it_was_simulated_with(name):
    order = generate(name, 2, 8)
    row = {"forward": Duration(40), "overlapped": Duration(95)}
    if order.splits_backward:
        row |= {"backward_input": Duration(50), "backward_weight": Duration(30)}
    given = Costs(
        stages=tuple(
            StageCosts(name=f"stage {s}", backward=Duration(90 + s), **row)
            for s in range(order.num_stages)
        ),
        edge=Edge(latency=7),
        tail=Tail(reduce=12, clip=3, optimizer=20),
    )
    step = simulate(order, given)
    assert simulate(order, observed_costs([step, step])).length == step.length


def test_edges_are_those_between_the_two_ranks_and_their_mean_elsewhere():
    rows = [["0F0", "0B0"], ["1F0", "1B0"], ["2F0", "2B0"]]
    sent = [("0SEND_F0", 0, 1, 5, 9), ("1SEND_F0", 1, 2, 5, 15), ("1SEND_B0", 1, 0, 20, 20)]
    step = measured(
        rows, [10, 10], transfers=[Transfer(parse(name), *where) for name, *where in sent]
    )
    costs = observed_costs([step])
    assert {ranks: edge.latency for ranks, edge in costs.edges.items()} == {
        (0, 1): 4,
        (1, 0): 0,
        (1, 2): 10,
    }
    assert costs.edge.latency == 5


def test_without_steps_there_are_no_costs():
    with pytest.raises(InputError, match="no measured steps"):
        observed_costs([])
