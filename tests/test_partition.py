"""Partition: as good as brute force on small cases, and sensible where optima tie."""

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unbubble.costs import Costs, Duration, Edge, StageCosts
from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.partition import even, fastest, improve, partition, stage_costs
from unbubble.partition.loads import Loads
from unbubble.schedule.placement import bidirectional, linear, looping, v_shape
from unbubble.simulate import simulate
from unbubble.steady import step_time


def layers(loads, **settings):
    rows = (StageCosts(forward=Duration(x), backward=Duration(2 * x)) for x in loads)
    return Costs(stages=tuple(rows), **settings)


def brute_force(loads, placement, speed):
    """The smallest bottleneck, by trying every split; loads are those of F."""
    best = None
    for cuts in combinations(range(1, len(loads)), placement.num_stages - 1):
        bounds = [0, *cuts, len(loads)]
        ranks = [Fraction(0)] * placement.ranks
        for placed, rank in enumerate(placement.rank_of):
            stage = placed % placement.num_stages
            load = 3 * sum(loads[bounds[stage] : bounds[stage + 1]])
            ranks[rank] += Fraction(load * speed.get(rank, 1)) / placement.copies
        best = max(ranks) if best is None else min(best, max(ranks))
    return best


placements = st.one_of(
    st.builds(linear, st.integers(1, 5)),
    st.builds(looping, st.integers(1, 3), st.integers(2, 3)),
    st.builds(v_shape, st.integers(1, 3), st.integers(2, 3)),
)
speeds = st.dictionaries(st.integers(0, 4), st.fractions(Fraction(1, 3), 5, max_denominator=4))


@given(placements, st.lists(st.integers(0, 30), max_size=4), st.data())
@settings(max_examples=200)
def test_the_bottleneck_is_that_of_brute_force(placement, more, data):
    size = placement.num_stages
    loads = more + data.draw(st.lists(st.integers(0, 30), min_size=size, max_size=size))
    speed = data.draw(speeds | st.just({}))
    speed = {rank: factor for rank, factor in speed.items() if rank < placement.ranks}
    found = partition(layers(loads, speed=speed), placement, slack=Fraction(0))
    assert sum(found.layers_per_stage) == len(loads)
    assert min(found.layers_per_stage) >= 1
    assert found.proven
    assert found.bottleneck == found.optimal_bottleneck == brute_force(loads, placement, speed)


@given(st.lists(st.integers(0, 30), min_size=3, max_size=8))
def test_two_copies_share_the_microbatches(loads):
    found = partition(layers(loads), bidirectional(3), slack=Fraction(0))
    best = brute_force(loads, bidirectional(3), {})
    assert found.optimal_bottleneck <= best <= found.bottleneck


@pytest.mark.parametrize(
    ("count", "stages", "split"),
    [(5, 4, (2, 1, 1, 1)), (61, 4, (16, 15, 15, 15)), (30, 4, (8, 8, 7, 7)), (3, 3, (1, 1, 1))],
)
def test_equal_layers_leave_no_stage_empty_and_the_front_heavier(count, stages, split):
    assert partition(layers([1] * count), linear(stages)).layers_per_stage == split


def test_front_heavy_is_faster_than_back_heavy():
    schedule = generate("1f1b", 4, 16)
    rows = layers([1] * 61)
    front = simulate(schedule, stage_costs(rows, [16, 15, 15, 15])).makespan
    back = simulate(schedule, stage_costs(rows, [15, 15, 15, 16])).makespan
    assert (front, back) == (894, 903)


def test_a_heavy_head_takes_layers_from_the_last_stage():
    found = partition(layers([1] * 31 + [5]), linear(4))
    assert found.layers_per_stage == (9, 9, 9, 5)
    assert found.bottleneck == 27


@pytest.mark.parametrize("placement", [looping(8, 2), v_shape(8)])
def test_several_stages_a_rank_stay_even_within_the_slack(placement):
    loads = [3, *((i * 37) % 41 + 980 for i in range(32)), 2500]
    found = partition(layers(loads), placement)
    assert found.proven
    assert found.bottleneck <= found.optimal_bottleneck * Fraction(101, 100)
    assert set(found.layers_per_stage) <= {1, 2, 3}


def test_what_the_budget_cannot_prove_is_a_bound():
    loads = [(i * 7) % 13 + 20 for i in range(40)]
    bounded = partition(layers(loads), looping(6, 2), budget=1, slack=Fraction(0))
    exact = partition(layers(loads), looping(6, 2), budget=10**7, slack=Fraction(0))
    assert exact.proven
    assert bounded.optimal_bottleneck <= exact.bottleneck <= bounded.bottleneck


def test_more_stages_a_rank_than_can_be_searched_are_given_up():
    """Where the regions of six passes meet was tried in every way before the budget was asked, of
    which most left a region too few layers: it did not end."""
    loads = [(i * 37) % 101 + 50 for i in range(120)]
    found = partition(layers(loads), looping(8, 6))
    assert not found.proven
    assert found.bottleneck < found.optimal_bottleneck * Fraction(102, 100)


def test_equal_layers_need_no_search():
    """400 layers on 128 stages took 13 s and their optimum, 7 layers on a rank, was not proven: an
    equal share is 6¼."""
    found = partition(layers([5] * 400), looping(64, 2), budget=0)
    assert found.proven
    assert found.bottleneck == 7 * 15


@given(placements | st.builds(bidirectional, st.sampled_from([2, 4])), st.data())
@settings(max_examples=100)
def test_the_descent_is_that_over_the_score_of_every_move(placement, data):
    size = placement.num_stages
    split = tuple(data.draw(st.lists(st.integers(1, 3), min_size=size, max_size=size)))
    every = st.lists(st.integers(0, 4), min_size=sum(split), max_size=sum(split))
    speed = data.draw(st.just({}) | st.just({0: Fraction(3, 2)}))
    loads = Loads(layers(data.draw(every), speed=speed), placement, split_backward=False)
    for limit in (0, loads.bottleneck(split)):
        expected = improve(split, lambda one, limit=limit: loads.score(one, limit))
        assert loads.improved(split, limit) == expected


def test_the_fastest_split_beats_the_smallest_bottleneck():
    rows, schedule = layers([1] * 61), generate("1f1b", 4, 4)
    split, makespan = fastest(rows, schedule)
    assert simulate(schedule, stage_costs(rows, split)).makespan == makespan == 307
    assert simulate(schedule, stage_costs(rows, [16, 15, 15, 15])).makespan == 318


@given(st.lists(st.integers(1, 9), min_size=3, max_size=6), st.integers(1, 6))
@settings(max_examples=30)
def test_the_fastest_split_is_never_slower_than_the_two_it_starts_from(loads, m):
    rows, schedule = layers(loads), generate("1f1b", 3, m)
    _, makespan = fastest(rows, schedule)
    for split in (even(len(loads), 3), partition(rows, linear(3)).layers_per_stage):
        assert makespan <= simulate(schedule, stage_costs(rows, split)).makespan


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=3, max_size=7),
    st.integers(2, 8),
    st.integers(0, 4),
)
@settings(max_examples=30, deadline=None)
def test_without_a_flush_the_fastest_split_has_the_fastest_steady_state(times, m, hop):
    """It had the fastest fill and drain: 90 for a step that takes 69 with [3, 3, 3]."""
    loads = tuple(StageCosts(forward=Duration(f), backward=Duration(b)) for f, b in times)
    rows, schedule = Costs(stages=loads, edge=Edge(hop)), generate("pipedream", 3, m)

    def step(split):
        costs = stage_costs(rows, split)
        return step_time(simulate(schedule, costs), costs)

    split, makespan = fastest(rows, schedule)
    assert step(split) == makespan
    starts = (even(len(times), 3), partition(rows, linear(3)).layers_per_stage)
    assert makespan <= min(map(step, starts))


def test_the_fastest_steady_state_of_some_layers():
    times = [(8, 6), (8, 8), (2, 1), (5, 7), (6, 7), (4, 5), (2, 5), (9, 4), (7, 1)]
    loads = tuple(StageCosts(forward=Duration(f), backward=Duration(b)) for f, b in times)
    rows = Costs(stages=loads, edge=Edge(1))
    assert fastest(rows, generate("pipedream", 3, 2)) == ((3, 3, 3), 69)


def test_stage_costs_add_up():
    rows = Costs(
        stages=(
            StageCosts(
                name="embedding",
                forward=Duration(1, 2, 3),
                backward_input=Duration(1),
                backward_weight=Duration(5),
                backward=Duration(5),
                held_until_input_bytes=10,
                weight_bytes=100,
                output_bytes=7,
            ),
            StageCosts(
                name="block 0",
                forward=Duration(10),
                backward_input=Duration(9),
                backward_weight=Duration(8),
                recompute=Duration(4),
                recompute_weight=Duration(3),
                held_until_weight_bytes=3,
                output_bytes=6,
            ),
            StageCosts(name="head", forward=Duration(2), backward=Duration(7)),
        ),
        unit="s",
        send_host=4,
    )
    first, last = stage_costs(rows, [2, 1]).stages
    assert first == StageCosts(
        name="embedding … block 0",
        forward=Duration(11, 2, 3),
        backward_input=Duration(10),
        backward_weight=Duration(13),
        backward=Duration(22),
        recompute=Duration(4),
        recompute_weight=Duration(3),
        held_until_input_bytes=10,
        held_until_weight_bytes=3,
        weight_bytes=100,
        output_bytes=6,
    )
    assert last == rows.stages[2]
    whole = stage_costs(rows, [3])
    assert (whole.unit, whole.send_host) == ("s", 4)
    assert whole.stages[0].backward_weight is None
    assert whole.stages[0].backward == Duration(29)


def test_even_splits():
    assert even(10, 4) == (3, 3, 2, 2)
    assert even(12, 5, remainder="last") == (2, 2, 2, 3, 3)
    assert even(27, 4, remainder="last") == (6, 7, 7, 7)


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="8 stages need at least 8 layers and there are 5"):
        partition(layers([1] * 5), linear(8))
    with pytest.raises(InputError, match=r"the split \[2, 2\] holds 4 layers and the costs 5"):
        stage_costs(layers([1] * 5), [2, 2])
    with pytest.raises(InputError, match="every stage holds at least one layer"):
        stage_costs(layers([1] * 5), [5, 0])
    with pytest.raises(InputError, match="layer 0 has no backward_input and backward_weight"):
        partition(layers([1] * 5), linear(2), split_backward=True)


@given(st.lists(st.integers(0, 9), min_size=3, max_size=8))
def test_of_equal_bottlenecks_the_evenest_and_then_the_front_heaviest(loads):
    every = [
        tuple(b - a for a, b in zip((0, *cuts), (*cuts, len(loads)), strict=True))
        for cuts in combinations(range(1, len(loads)), 2)
    ]

    def score(split):
        first, second, _ = split
        held = [sum(loads[:first]), sum(loads[first : first + second]), 0]
        held[2] = sum(loads) - sum(held)
        return max(held), sum(load * load for load in held), [-count for count in split]

    assert partition(layers(loads), linear(3)).layers_per_stage == min(every, key=score)


def test_ten_thousand_layers():
    """All splits of the first stages within the limit were balanced, those from which no end can be
    reached too: a minute and a half."""
    assert partition(layers([1] * 10_000), linear(4)).layers_per_stage == (2500,) * 4


def test_a_speed_of_many_digits_has_a_split():
    """Its squared loads were above the largest number that counted, an internal error."""
    speed = {0: 1 + Fraction(1, 10**26), 1: Fraction(4, 3)}
    found = partition(layers([10**9] * 6, speed=speed), linear(3))
    assert found.layers_per_stage == (2, 2, 2)
