"""Which action makes what another takes, and which transfer brings it."""

import pytest

from unbubble.action import Kind, parse, receive_for, receive_of, send_of, unpack
from unbubble.families import generate
from unbubble.schedule import Schedule
from unbubble.schedule.inputs import inputs, wanted_receive, wanted_send
from unbubble.schedule.lowering import lower
from unbubble.schedule.placement import bidirectional, linear, v_shape

V = v_shape(2)  # stages 0 1 2 3 on ranks 0 1 1 0
COPIES = bidirectional(2)  # stages 0 1 and 2 3 on ranks 0 1 and 1 0


def test_every_action_names_the_one_that_makes_its_input():
    order = Schedule.of([["0F0", "3F0", "3I0", "3W0", "0B0"], ["1F0", "2F0", "2B0", "1B0"]], V)
    names = [str(unpack(code)) for row in order.codes for code in row]
    made = {name: None if i < 0 else names[i] for name, i in zip(names, inputs(order), strict=True)}
    assert made == {
        "0F0": None, "1F0": "0F0", "2F0": "1F0", "3F0": "2F0",
        "3I0": "3F0", "3W0": "3I0", "2B0": "3I0", "1B0": "2B0", "0B0": "1B0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("action", "placement", "receive", "send"),
    [
        ("0F3", V, None, "0SEND_F3"),
        ("1F3", V, "1RECV_F3", None),
        ("2F3", V, None, "2SEND_F3"),
        ("3I3", V, None, "3SEND_B3"),
        ("2I3", V, "2RECV_B3", None),
        ("0W3", V, None, None),
        ("1F3", COPIES, "1RECV_F3", None),
        ("2F3", COPIES, None, "2SEND_F3"),
        ("1B3", COPIES, None, "1SEND_B3"),
        ("0B3", linear(1), None, None),
    ],
)
def test_what_an_action_receives_and_sends(action, placement, receive, send):
    found = wanted_receive(parse(action), placement), wanted_send(parse(action), placement)
    assert found == (receive and parse(receive), send and parse(send))


@pytest.mark.parametrize("name", ["zb-v", "dualpipe", "interleaved-1f1b"])
def test_those_are_the_transfers_that_a_lowered_order_has(name):
    order = lower(generate(name, 2, 8))
    parts = [p for r in range(2) for action in order.actions(r) for p in action.parts]
    wanted = {w(p, order.placement) for p in parts for w in (wanted_receive, wanted_send)} - {None}
    assert wanted == {p for p in parts if Kind.SEND_F <= p.kind <= Kind.RECV_B}
    for receive in filter(None, map(receive_for, parts)):
        assert receive_of(send_of(receive)) == receive
