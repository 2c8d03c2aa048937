"""A class below 0 is printed as it is, with the reason below the table."""

from dataclasses import replace

import pytest
from tests.cli.examples import lay_out

from unbubble.attribution import CLASSES, attribute
from unbubble.classes import HEADS, why_below_zero
from unbubble.costs import Costs
from unbubble.families import generate
from unbubble.runtime.outcome import class_lines
from unbubble.simulate import simulate

REASON = "imbalance below 0: the rank waits less than among equal ranks, being slow itself"


def attributed(forward):
    order = generate("1f1b", 2, 4)
    return attribute(simulate(order, Costs.uniform(order.placement, forward=forward, unit="s")))


def test_the_slow_ranks_imbalance_is_explained(unbubble, tmp_path):
    """−2.6 % of imbalance stood there without a word."""
    lay_out(tmp_path)
    lines = unbubble(f"trace {tmp_path}/step.json").out.splitlines()
    last = next(i for i, line in enumerate(lines) if line.startswith("   1  "))
    assert "-2.6%" in lines[last]
    assert lines[last + 1] == REASON


def test_predicted_and_measured_classes_are_explained():
    equal, slow = attributed(1), attributed([1, 2])
    assert class_lines(slow, equal)[-1] == class_lines(equal, slow)[-1] == REASON
    assert class_lines(equal, equal)[-1].startswith("       predicted")


@pytest.mark.parametrize(
    ("cells", "heads"),
    [
        ({"imbalance": "-0.1", "jitter": "3.0"}, ["imbalance"]),
        ({"imbalance": "-0.0", "jitter": "-12.0%"}, ["jitter"]),
        ({"imbalance": "-", "jitter": "-0.0%"}, []),
        ({"bubble": "-1"}, []),
    ],
)
def test_only_what_is_shown_below_zero(cells, heads):
    assert [reason.split()[0] for reason in why_below_zero([cells])] == heads


def test_nothing_that_rounds_to_zero_is_shown_below_it():
    slow = attributed([1, 1])
    ranks = [row._replace(overhead=row.overhead - 10**-9) for row in slow.ranks]
    assert "-0.0" not in "".join(class_lines(replace(slow, ranks=tuple(ranks)), slow))


def test_every_class_has_a_head():
    assert tuple(HEADS) == CLASSES
