"""Names that nobody knows are answered with those like them."""

import pytest

from unbubble.errors import names_like, suggestion

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
