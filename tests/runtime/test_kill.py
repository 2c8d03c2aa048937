"""A recorded training that is killed leaves every complete step; benchmarks/ has the campaign."""

import subprocess
import sys
from pathlib import Path

CAMPAIGN = Path(__file__).parents[2] / "benchmarks" / "recorder_kill.py"


def test_a_kill_loses_no_complete_step():
    command = [sys.executable, str(CAMPAIGN), "--kills", "4", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 kills: " in done.stdout
    assert "0 kills lost a complete step" in done.stdout
