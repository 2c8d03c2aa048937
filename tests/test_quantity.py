"""Quantities as people read them."""

from fractions import Fraction

import pytest

from unbubble.quantity import counted, percent, shown_time


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (-0.0242, "-24.2 ms"), (0.9994, "999 ms"), (0.9999, "1 s"), (1234.5, "1,234 s")],
)
def test_no_time_is_shown_with_an_exponent(seconds, text):
    """A step of 0.9999 s was one of 1e+03 ms."""
    assert shown_time(seconds) == text


@pytest.mark.parametrize(
    ("shown", "text"),
    [(percent(Fraction(1, 8)), "12.5%"), (percent(-0.0004), "0.0%"),
     (percent(0.0123, 2, sign=True), "+1.23%"), (percent(-0.0321, sign=True), "-3.2%")],
)  # fmt: skip
def test_no_share_that_rounds_to_zero_is_shown_below_it(shown, text):
    """A prediction 0.04 % short was one of -0.0%."""
    assert shown == text


def test_one_is_no_plural():
    """A schedule of one rank had 1 ranks and 1 microbatches."""
    assert [counted(n, "rank") for n in (0, 1, 2)] == ["0 ranks", "1 rank", "2 ranks"]
