"""Recorded: what a recorder inside the training process took of one rank's step, as observations.

On a rank's thread, or its device's stream, one thing follows another. Of each action, the sends and
receives among them, there are the wait for its input, then its time, and the part of that in which
the model ran.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from unbubble.action import COMPUTE, TRANSFER, Action, receive_for
from unbubble.errors import InputError
from unbubble.trace.observed import NOTICEABLE_NS, HalfTransfer, Seen


class Columns(NamedTuple):
    """One step in ns: when it began; of each action the wait, its time, and the model's part of
    that."""

    begin: int
    waits: list[int]
    times: list[int]
    own: list[int]


class Recorded:
    """The actions of one rank in the order in which its steps ran them; an observation is made of
    every step's columns."""

    def __init__(self, actions: Iterable[Action]):
        self.actions = tuple(actions)
        users = {
            receive: place
            for place, action in enumerate(self.actions)
            if action.kind in COMPUTE
            for part in action.parts
            if (receive := receive_for(part)) is not None
        }
        posts = [
            (place, users.get(action, -1))
            for place, action in enumerate(self.actions)
            if action.kind in TRANSFER
        ]
        last = {user: place for place, user in posts}
        self._posts = [(place, user, last[user] == place) for place, user in posts]

    def seen(self, columns: Columns) -> list[Seen]:
        """Every action. Raises InputError where the columns contradict themselves."""
        found, at = [], columns.begin
        for action, wait, time, own in zip(self.actions, *columns[1:], strict=True):
            if wait < 0 or not 0 <= own <= time:
                raise InputError(
                    f"{action} waits {wait} ns, takes {time} ns, {own} ns of them its own"
                )
            start = at + wait
            at = start + time
            found.append(Seen(action, start, at, 0, time - own))
        return found

    def halves(self, seen: Sequence[Seen], columns: Columns) -> list[HalfTransfer]:
        """The rank's ends of transfers.

        An arrival shows where what uses it waited for it: of the two inputs of an overlapped pair,
        for the one that was posted last. As a pair may have waited in its middle, and nothing tells
        when an action of no wait asked for its input, it is certain only to have been there at
        their ends.
        """
        found = []
        for place, user, last in self._posts:
            action, called, posted, *_ = seen[place]
            if user < 0:
                found.append(HalfTransfer(action, called, posted, posted, False))
                continue
            using, start, end, *_ = seen[user]
            waited = columns.waits[user] > NOTICEABLE_NS
            done = start if waited and using.pair is None else end
            found.append(HalfTransfer(action, called, posted, done, waited and last, start))
        return found
