"""Orders that must not change by accident, as files: what we generate, read and write is these.

Each file is named family.p.m.v.receive (0: compute only). After a change that is meant,
`UNBUBBLE_GOLDEN=write` rewrites them, to be reviewed as a diff.
"""

import os
from pathlib import Path

import pytest

from unbubble.families import generate
from unbubble.schedule import format_csv, parse_csv
from unbubble.schedule.check import check
from unbubble.schedule.whole_stage import for_pytorch

FOLDER = Path(__file__).parent.parent / "golden"
FILES = [
    "gpipe.4.4.1.0",
    "1f1b.4.8.1.0",
    "1f1b.4.8.1.early",
    "1f1b.4.8.1.just-in-time",
    "1f1b.4.8.1.smart",
    "interleaved-1f1b.2.4.2.0",
    "interleaved-1f1b.2.4.2.smart",
    "looped-bfs.2.4.2.0",
    "interleaved-zb.2.4.2.early",
    "zb-h1.4.8.1.0",
    "zb-v.3.6.2.0",
    "zb-v.3.6.2.smart",
    "zb-v.3.6.2.rendezvous",
    "dualpipe-v.2.6.2.0",
    "dualpipe-v.2.6.2.early",
]


@pytest.mark.parametrize("name", FILES)
def test_the_order_is_the_golden_file(name):
    family, ranks, microbatches, virtual, receive = name.split(".")
    schedule = generate(family, int(ranks), int(microbatches), int(virtual))
    if receive != "0":
        schedule = for_pytorch(schedule, receive)
    path = FOLDER / f"{name}.csv"
    if os.environ.get("UNBUBBLE_GOLDEN") == "write":
        path.write_text(format_csv(schedule))
    text = path.read_text()
    assert format_csv(schedule) == text
    assert parse_csv(text) == schedule
    assert format_csv(parse_csv(text)) == text
    assert check(schedule, "buffered").good


def test_every_golden_file_is_tested():
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(FILES)
