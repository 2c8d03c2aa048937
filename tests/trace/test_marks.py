"""Which ranges on host threads are the actions of the pipeline."""

import pytest

from unbubble.trace.marks import Mark, named_in


def named(ranges):
    """Start, end and action of those of name, start and end that are actions."""
    found = named_in([Mark(start, end, name, 1) for name, start, end in ranges])
    return [(mark.start, mark.end, str(one.action)) for mark, one in found.items()]


@pytest.mark.parametrize(
    ("ranges", "right"),
    [
        (
            [("PP:0F0", 0, 100), ("pp:forward_one_chunk/stage=0/mb=0", 20, 90)],
            [(20, 90, "0F0")],
        ),
        (
            [("Forward 1", 0, 100), ("pp:forward_one_chunk/stage=3/mb=1", 20, 90)],
            [(20, 90, "3F1")],
        ),
        (
            [("PP:0B0", 0, 50), ("pp:backward_one_chunk/stage=0/mb=0", 10, 40),
             ("PP:0I1", 50, 90), ("pp:backward_one_chunk/stage=0/mb=1", 60, 80),
             ("PP:0W1", 90, 99), ("pp:backward_weight_one_chunk/stage=0/mb=1", 92, 98)],
            [(10, 40, "0B0"), (60, 80, "0I1"), (92, 98, "0W1")],
        ),
        (
            [("PP:(0F1;3B0)OVERLAP_F_B", 0, 100), ("pp:forward_one_chunk/stage=0/mb=1", 10, 40),
             ("pp:backward_one_chunk/stage=3/mb=0", 50, 90)],
            [(0, 100, "(0F1;3B0)OVERLAP_F_B")],
        ),
        (
            [("pp:backward_one_chunk/stage=0/mb=1", 60, 80),
             ("pp:backward_weight_one_chunk/stage=0/mb=1", 92, 98)],
            [(60, 80, "0I1"), (92, 98, "0W1")],
        ),
    ],
)  # fmt: skip
def test_a_method_s_range_within_pytorch_s_own_is_the_same_action(ranges, right):
    """With both, as where GPipe or an interleaved schedule is annotated too, every action had
    happened twice and there were no classes."""
    assert named(ranges) == right


def test_of_a_method_s_ranges_within_each_other_it_is_the_outer():
    """Where backwards are annotated twice it was an internal error."""
    twice = [
        ("mine: backward_one_chunk stage=0 mb=1", 50, 90),
        ("pp:backward_one_chunk/stage=0/mb=1", 60, 80),
    ]
    assert named(twice) == [(50, 90, "0B1")]
