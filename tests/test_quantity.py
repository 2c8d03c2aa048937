"""Quantities as people read them."""

import pytest

from unbubble.quantity import shown_time


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (-0.0242, "-24.2 ms"), (0.9994, "999 ms"), (0.9999, "1 s"), (1234.5, "1,234 s")],
)
def test_no_time_is_shown_with_an_exponent(seconds, text):
    """A step of 0.9999 s was one of 1e+03 ms."""
    assert shown_time(seconds) == text
