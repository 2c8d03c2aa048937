"""Models whose second layer bears four microbatches of a step, and not eight."""

import os
import signal
import time

from tests.models import acting

BEARS = 6
"""A step of four and what finds out the shapes."""
SLOW = 4
"""Calls that are so slow that twice as many microbatches pay on the busiest machine."""


def _tiring(deed):
    return acting(deed, BEARS, lambda call: 0.05 if call <= SLOW else 0.004)


def killed():
    return _tiring(lambda: os.kill(os.getpid(), signal.SIGKILL))


def interrupting():
    """Ctrl-C, as the terminal sends it to the command."""

    def deed():
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)

    return _tiring(deed)
