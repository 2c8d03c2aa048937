"""What holds for every family: the registry, complete schedules, no deadlock, honest placement."""

from collections import Counter

import pytest
from hypothesis import given, settings
from tests.families.legal import generated

from unbubble.action import KIND_MASK, MICROBATCH_SHIFT, STAGE_MASK, STAGE_SHIFT, Kind
from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import families, family, generate
from unbubble.families.family import MAX_CELLS, MAX_STAGES, nearest
from unbubble.simulate import simulate

NAMES = {
    "naive", "gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "looped-bfs", "interleaved-zb",
    "dualpipe", "dualpipe-v", "chimera", "pipedream", "zb-h1", "zb-h2", "zb-1p", "zb-2p", "zb-v",
    "zbv-zero-bubble", "v-half", "v-min",
}  # fmt: skip
PYTORCH = {
    "ScheduleGPipe": "gpipe",
    "Schedule1F1B": "1f1b",
    "ScheduleInterleaved1F1B": "interleaved-1f1b",
    "ScheduleLoopedBFS": "looped-bfs",
    "ScheduleInterleavedZeroBubble": "interleaved-zb",
    "ScheduleDualPipeV": "dualpipe-v",
    "ScheduleZBVZeroBubble": "zbv-zero-bubble",
}


def test_the_registry_holds_every_name():
    assert set(families()) >= NAMES


@pytest.mark.parametrize(("alias", "name"), PYTORCH.items())
def test_pytorchs_class_names_are_aliases_with_and_without_their_prefix(alias, name):
    assert family(alias).name == name
    assert family(alias.removeprefix("Schedule").upper()).name == name


def test_every_name_and_alias_means_one_family():
    keys = Counter(
        "".join(c for c in name.lower() if c.isalnum())
        for entry in families().values()
        for name in {entry.name, *entry.aliases}
    )
    assert [key for key, count in keys.items() if count > 1] == []


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_family_says_what_it_is(name):
    entry = families()[name]
    for said in (entry.summary, entry.source, entry.bubble, entry.memory, entry.needs):
        assert said == said.strip() != ""


def missing_or_doubled(schedule):
    """Stages and microbatches whose F and whole backward (B, or I then W) are not there once."""
    found = {}
    for rank, row in enumerate(schedule.codes):
        for code in row:
            stage, microbatch = code >> STAGE_SHIFT & STAGE_MASK, (code >> MICROBATCH_SHIFT) - 1
            assert schedule.placement.rank_of[stage] == rank
            found.setdefault((stage, microbatch), []).append(Kind(code & KIND_MASK).name)
    stages, copies = schedule.num_stages, schedule.placement.copies
    wrong = {key: kinds for key, kinds in found.items() if "".join(kinds) not in ("FB", "FIW")}
    for microbatch in range(schedule.microbatches):
        owners = [c for c in range(copies) if (c * stages, microbatch) in found]
        if len(owners) != 1:
            wrong["copies", microbatch] = owners
            continue
        for stage in range(owners[0] * stages, (owners[0] + 1) * stages):
            if (stage, microbatch) not in found:
                wrong[stage, microbatch] = []
    extra = len(found) - stages * schedule.microbatches
    return wrong or extra


@settings(max_examples=300, deadline=None)
@given(generated())
def test_every_schedule_is_complete_placed_as_announced_and_runs_to_its_end(made):
    entry, schedule = made
    ranks = schedule.ranks
    virtual = schedule.num_stages // ranks
    assert schedule.placement == entry.placement(ranks, virtual)
    assert not missing_or_doubled(schedule)
    timeline = simulate(schedule, Costs.uniform(schedule.placement, forward=2, backward_input=3))
    assert timeline.makespan >= max(timeline.work)
    assert schedule.splits_backward <= entry.splits_backward
    assert schedule.flush == (entry.name != "pipedream")
    assert schedule.name == entry.name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 4), "p (ranks) is 0"),
        ((4, 0), "m (microbatches) is 0"),
        ((4, -1), "m (microbatches) is -1"),
        ((4, 4, 2), "v (stages a rank) of 1, not 2"),
        ((1 << 10, 1 << 20), f"at most {MAX_CELLS}"),
        ((1 << 40, 1), f"at most {MAX_STAGES}"),
    ],
)
def test_parameters_that_no_family_takes(arguments, words):
    with pytest.raises(InputError) as error:
        generate("1f1b", *arguments)
    assert words in str(error.value)


def test_a_v_that_the_family_cannot_have():
    with pytest.raises(InputError, match=r"interleaved-1f1b has v .* of at least 1, not 0"):
        generate("interleaved-1f1b", 4, 4, 0)
    with pytest.raises(InputError, match=r"dualpipe-v has v .* of 2, not 1"):
        generate("dualpipe-v", 4, 8, 1)


def test_an_unknown_option_names_those_there_are():
    with pytest.raises(InputError, match="1f1b has no option 'group'"):
        generate("1f1b", 4, 4, group=4)
    with pytest.raises(InputError, match="its options are rule, group"):
        generate("interleaved-1f1b", 4, 4, size=4)


def test_a_name_carries_options():
    chosen = family("Interleaved 1F1B:rule=megatron:group=6")
    assert chosen.name == "interleaved-1f1b:rule=megatron:group=6"
    schedule = chosen.generate(4, 6, 2)
    assert schedule.name == chosen.name
    assert schedule.codes == generate("interleaved-1f1b", 4, 6, 2, group=6).codes
    assert chosen.with_options(group=4).preset == (("rule", "megatron"), ("group", 4))
    with pytest.raises(InputError, match="Megatron's rule"):
        chosen.with_options(group=4).generate(4, 6, 2)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("1f1b:group=4", "1f1b has no option 'group'"),
        ("interleaved-1f1b:group", "'group' is not an option"),
        ("interleaved-1f1b:", "'' is not an option"),
        ("interleaved-1f1b:group=", "write name:key=value"),
        ("interleaved-1f1b:group=٣", "group is '٣'"),
        ("interleaved-1f1b:group=-1", "group is '-1'"),
        ("interleavd:group=4", "no schedule is called 'interleavd'; did you mean"),
        (f"interleaved-1f1b:group={'9' * 5000}", "group is '999"),
    ],
)
def test_a_name_carries_nothing_else(name, words):
    with pytest.raises(InputError) as error:
        generate(name, 4, 8)
    assert words in str(error.value)


def test_the_nearest_legal_values():
    assert nearest(9, lambda m: m % 4 == 0) == "8 or 12"
    assert nearest(2, lambda m: m >= 8) == "8"
    assert nearest(7, lambda m: m < 3) == "2"
    assert nearest(3, lambda m: False) == ""
