"""Names that nobody knows are answered with those like them; what is cut short is told."""

import pytest

from unbubble.errors import names_like, some, suggestion

KNOWN = ["zb-h1", "zb-h2", "zb-v", "gpipe"]


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("gpip", "did you mean gpipe?"),
        ("ZB-H3", "did you mean zb-h2, zb-h1 or zb-v?"),
        ("nope-at-all", "known are zb-h1, zb-h2, zb-v, gpipe"),
        ("", "known are zb-h1, zb-h2, zb-v, gpipe"),
        ("gpipe" * 10**6, "known are zb-h1, zb-h2, zb-v, gpipe"),
    ],
)
def test_the_names_like_it_or_all_of_them(name, end):
    assert suggestion(name, KNOWN) == end


def test_names_of_the_same_key_are_one():
    assert names_like("zbv", ["ZB-V", "zb v"], lambda name: name.lower()[:2]) == ["ZB-V"]


def test_a_list_that_is_cut_short_says_so():
    """Of 12 missing replicas 8 were named as if they were all."""
    assert some(range(8)) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert some(range(12)) == "0, 1, 2, 3, 4, 5, 6, 7 and 4 more"
    assert some(["x" * 41]) == "x" * 37 + "..."
