"""The tail of a step, recompute, speeds and overheads, by hand."""

from dataclasses import replace
from fractions import Fraction

import pytest

from unbubble.attribution import attribute
from unbubble.costs import Costs, Duration, StageCosts, Tail
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.schedule import Schedule, format_csv
from unbubble.simulate import simulate
from unbubble.simulate.tail import with_tail

ORDER = Schedule.of([["0F0", "0B0"], ["1F0", "1B0"]])
# rank 0  0 . . . a a
# rank 1  . 0 a a . .


def costs(**more):
    return replace(Costs.uniform(ORDER.placement, forward=1, backward=2), **more)


def events(timeline, rank):
    return [(str(e.action), e.start, e.end) for e in timeline.events(rank)]


def test_reduction_clipping_and_optimizer_end_the_step():
    timeline = simulate(ORDER, costs(tail=Tail(reduce=5, clip=1, optimizer=3)))
    assert events(timeline, 0)[2:] == [
        ("0REDUCE_GRAD", 6, 11), ("0CLIP", 11, 12), ("0OPTIMIZER", 12, 15),
    ]  # fmt: skip
    assert events(timeline, 1)[2:] == [
        ("1REDUCE_GRAD", 4, 9), ("1CLIP", 11, 12), ("1OPTIMIZER", 12, 15),
    ]  # fmt: skip
    assert (timeline.makespan, timeline.span, timeline.finish) == (6, 6, 15)


def test_without_clipping_a_rank_goes_on_alone():
    timeline = simulate(ORDER, costs(tail=Tail(reduce=5, optimizer=3)))
    assert events(timeline, 1)[-1] == ("1OPTIMIZER", 9, 12)


def test_overlapped_reductions_run_beside_compute_one_at_a_time():
    order = Schedule.of([["0F0", "1F0", "1B0", "0B0"]])
    one = costs(tail=Tail(reduce=7, optimizer=1, overlap_reduce=True))
    timeline = simulate(order, one)
    assert events(timeline, 0) == [
        ("0F0", 0, 1), ("1F0", 1, 2), ("1B0", 2, 4), ("1REDUCE_GRAD", 4, 7), ("0B0", 4, 6),
        ("0REDUCE_GRAD", 7, 11), ("0OPTIMIZER", 11, 12),
    ]  # fmt: skip
    assert (timeline.makespan, timeline.work) == (6, (6,))
    (row,) = attribute(timeline).ranks
    assert (row.compute, row.optimizer, row.communication, row.total) == (7, 1, 5, 12)


def test_a_tail_is_put_on_once():
    tail = costs(tail=Tail(optimizer=3))
    once = with_tail(ORDER, tail)
    assert with_tail(once, tail) is once
    assert simulate(simulate(ORDER, tail).schedule, tail).finish == 9
    assert with_tail(ORDER, costs()) is ORDER
    with pytest.raises(InputError, match="no action for gradient clipping"):
        format_csv(once)


def test_the_classes_of_a_tail():
    timeline = simulate(ORDER, costs(tail=Tail(reduce=5, clip=1, optimizer=3)))
    for row in attribute(timeline).ranks:
        assert (row.compute, row.bubble, row.optimizer) == (6, 3, 3)
        assert row.communication == 6
        assert sum(row[1:7]) == row.total == 15


def test_recompute_is_in_the_backward_and_has_a_line_of_its_own():
    stages = tuple(replace(row, recompute=Duration(1)) for row in costs().stages)
    timeline = simulate(ORDER, costs(stages=stages))
    assert timeline.makespan == 8
    assert [row.recompute for row in attribute(timeline).ranks] == [1, 1]


def test_recompute_for_both_halves_of_the_backward():
    """marin#6532: with full recompute zero bubble took five forwards' time where three were
    expected, as the forward ran again for I and for W."""
    order = Schedule.of([["0F0", "0F1", "0I0", "0W0", "0B1"]])
    row = StageCosts(
        forward=Duration(1), backward_input=Duration(1), backward_weight=Duration(1),
        recompute=Duration(1), recompute_weight=Duration(1),
    )  # fmt: skip
    timeline = simulate(order, Costs(stages=(row,)))
    # a whole backward recomputes once
    assert timeline.makespan == 1 + 1 + 2 + 2 + 3
    assert [list(part) for part in timeline.recompute] == [[0, 0, 1, 1, 1]]


def test_speeds_and_overheads():
    slow = costs(speed={1: Fraction(3)}, action_overhead=1)
    timeline = simulate(ORDER, slow)
    assert events(timeline, 1) == [("1F0", 2, 6), ("1B0", 6, 13)]
    assert timeline.overhead is not None
    assert [list(row) for row in timeline.overhead] == [[1, 1], [1, 1]]
    assert attribute(timeline).gains.overhead == 4


def test_a_tail_of_many_stages_shares_the_reduction():
    order = generate("interleaved-1f1b", 2, 4, 2)
    one = Costs.uniform(order.placement, forward=2, backward=4)
    timeline = simulate(order, replace(one, tail=Tail(reduce=9)))
    for rank in range(2):
        assert sum(b - a for name, a, b in events(timeline, rank) if "REDUCE" in name) == 9


def test_only_what_is_missing_is_added():
    order = Schedule.of([["0F0", "0B0", "0REDUCE_GRAD"], ["1F0", "1B0", "1REDUCE_GRAD"]])
    full = with_tail(order, costs(tail=Tail(reduce=5, clip=1, optimizer=3)))
    assert " ".join(map(str, full.actions(1))) == "1F0 1B0 1REDUCE_GRAD 1CLIP 1OPTIMIZER"
    ended = Schedule.of([["0F0", "0B0", "0OPTIMIZER"], ["1F0", "1B0", "1OPTIMIZER"]])
    full = with_tail(ended, costs(tail=Tail(reduce=5, clip=1, optimizer=3)))
    assert " ".join(map(str, full.actions(0))) == "0F0 0B0 0REDUCE_GRAD 0CLIP 0OPTIMIZER"
