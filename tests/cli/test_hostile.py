"""Whatever is typed ends with an answer or with one sentence, never with an internal error."""

import contextlib
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unbubble.cli import invoke

NUMBERS = st.sampled_from(
    ["0", "1", "2", "3", "4", "-1", "7", "100", "99999999999999999999", "x", "", "1.5", "٣", "1e3"]
)
SMALL = st.sampled_from(["1", "2", "3", "4"])
TIMES = st.sampled_from(
    ["0", "1", "-1", "nan", "inf", "-inf", "1e400", "1e-400", "1e29", "1ms", "1.5us", "2parsec", "",
     ",", "1,2", "1,2,3,4", "1ms,2", "0x10", "1e15", "1/3", "0.1", "٣", "1_000", "10 ms", "1;2"]
)  # fmt: skip
NAMES = st.sampled_from(
    ["1f1b", "gpipe", "zb-h1", "zb-v", "interleaved", "dualpipe", "chimera", "pipedream", "naive",
     "", "x", ",", "1f1b,gpipe", "1f1b:x=1", "interleaved-1f1b:group=4", "a" * 300, "\x00",
     "ScheduleGPipe"]
)  # fmt: skip
FRACTIONS = st.sampled_from(
    ["5%", "0.05", "0", "1", "-1", "nan", "1e-300", "x", "", "100%", "2", "1e400", "9" * 5000]
)
PATHS = st.sampled_from(["", "/nonexistent/none", "/dev/null", "/", "a\x00b", "x" * 999])
SERIES = st.sampled_from(["", "1", "8:1", "8:1,16:2", "8:-1,16:2", "x:1", "8:nan,9:1", "8:1,8:2"])
SPLITS = st.sampled_from(["", "1", "1,2", "0,1", "x", "1,,2", "99999999999999999999"])
TIME_OPTIONS = {
    f"--{name}": TIMES
    for name in ("forward", "backward-input", "backward-weight", "backward", "overlapped", "p2p")
}
SIZES = {"-p": SMALL | NUMBERS, "-m": SMALL | NUMBERS, "-v": SMALL | NUMBERS}
COSTS = {"--costs": PATHS, "--layers-per-stage": SPLITS}

COMMANDS = {
    "bubble": SIZES | TIME_OPTIONS | {
        "--target": FRACTIONS, "--speedup": TIMES, "--framework": NAMES, "--schedule": NAMES,
    },
    "simulate": SIZES | TIME_OPTIONS | COSTS | {"--schedule": NAMES, "--csv": PATHS},
    "compare": SIZES | TIME_OPTIONS | COSTS | {"--schedules": NAMES},
    "sweep": SIZES | TIME_OPTIONS | COSTS | {
        "--schedule": NAMES, "--most": SMALL, "--pays": FRACTIONS, "--throughput": SERIES,
        "--seconds": SERIES, "--control": SERIES,
    },
    "partition": SIZES | {
        "--layers": NUMBERS, "--costs": PATHS, "--schedule": NAMES, "-o": PATHS,
        "--objective": st.sampled_from(["bottleneck", "makespan", "x"]),
    },
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_options_give_an_answer_or_one_sentence(command, data):
    chosen = data.draw(st.fixed_dictionaries({}, optional=COMMANDS[command]))
    args = [command, *(word for pair in chosen.items() for word in pair)]
    args += data.draw(st.sampled_from([[], ["--json"]]))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = invoke(args)
    message = err.getvalue()
    assert status in (0, 2), message
    assert (status == 2) == bool(message)
    assert message.count("\n") == (status == 2), message
    assert len(message) < 1500
    if status == 2:
        assert out.getvalue() == ""
