"""The line of a long command, and what is printed while it stands there."""

import os
import pty
import re
import subprocess
import sys

CODE = """
from unbubble.cli.progress import progress
with progress("demo") as tell:
    tell("measuring")
    tell.above("the answer")
"""


def test_an_answer_does_not_go_on_behind_the_line():
    """The first line of the demo's tables stood behind "demo: measuring transfers"."""
    parent, child = pty.openpty()
    environment = os.environ | {"TERM": "xterm"}
    subprocess.run([sys.executable, "-c", CODE], stdout=child, stderr=child, env=environment)
    os.close(child)
    seen = os.read(parent, 1 << 16).decode()
    os.close(parent)
    assert "measuring" in seen
    before, found, _ = seen.partition("the answer\r\n")
    assert found
    assert re.search("(^|\x1b\\[2K|\n)$", before)
