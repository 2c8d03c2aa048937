"""The vocabulary: parse and format are inverse, and what is not an action is refused."""

import pytest

from unbubble.action import JOINED, Action, Kind, overlap, pack, parse, unpack
from unbubble.errors import InputError


@pytest.mark.parametrize(
    "text", ["2F0", "1I3", "0W12", "7B1023", "0SEND_F0", "1RECV_B4", "2REDUCE_GRAD", "0UNSHARD",
             "(0F3;5B1)OVERLAP_F_B", "(0F3;5I1)OVERLAP_F_B"],
)  # fmt: skip
def test_parse_and_str_are_inverse(text):
    assert str(parse(text)) == text


def test_a_code_holds_the_action():
    action = Action(Kind.I, 31, 8191)
    assert unpack(pack(Kind.I, 31, 8191)) == action
    assert unpack(pack(Kind.UNSHARD, 3)) == Action(Kind.UNSHARD, 3)


def test_a_pair_is_two_codes_of_which_the_first_is_joined():
    pair = overlap(Action(Kind.F, 0, 3), Action(Kind.B, 5, 1))
    assert pair.codes == (pack(Kind.F, 0, 3) | JOINED, pack(Kind.B, 5, 1))


@pytest.mark.parametrize(
    "text", ["", "F", "0F", "F0", "0F0junk", "0X0", "-1F0", "0F-1", "0UNSHARD0", "0F0;1B0",
             "(0B0;1F0)OVERLAP_F_B", "(0F0)OVERLAP_F_B", "0F99999999999", "999999999F0", "0F٣"],
)  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(InputError):
        parse(text)
