"""The one simulator: a schedule and its costs become a Timeline."""

from unbubble.simulate.program import Deadlock
from unbubble.simulate.simulation import simulate
from unbubble.simulate.timeline import Event, Timeline, Transfer
from unbubble.simulate.waits import Wait, waits

__all__ = ["Deadlock", "Event", "Timeline", "Transfer", "Wait", "simulate", "waits"]
