"""Text for people in the columns that there are: sentences, items, tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbubble.terminal import columns, joined, table, wrapped

SPLIT = "8,8,8,8,8,8,8,8,8,8"
ROWS = [
    {"split": "naive", "step": "24", "bubble": "9.00 %", "layers": SPLIT},
    {"split": "chosen", "step": "7.5", "bubble": "-", "layers": SPLIT[:9]},
]


def test_sentences_go_on_indented_by_two():
    assert wrapped("one two three four", 9) == "one two three four"
    assert wrapped("one two, three four  five six", 20) == "one two, three four\n  five six"
    assert wrapped("  one two three four five", 20) == "  one two three four\n    five"
    assert wrapped("a " + "b" * 40 + " c", 20) == "a\n  " + "b" * 40 + "\n  c"
    assert wrapped("one\n\ntwo", 20) == "one\n\ntwo"
    assert wrapped("wide  as it is", 0) == "wide  as it is"


@given(st.text(alphabet="ab ,\n"), st.integers(0, 40))
def test_nothing_is_lost(text, width):
    def letters(text):
        return [c for c in text if c in "ab,"]

    found = wrapped(text, width)
    assert letters(found) == letters(text)
    if width >= 20:
        words = max(map(len, text.replace(",", " ").split()), default=0)
        assert all(len(line) <= max(width, words + 3) or not line.strip()
                   for line in found.split("\n")) or "  " in text or ",," in text  # fmt: skip


def test_items_are_kept_whole():
    assert joined(["step 7  1 s", "idle 2 %", "work 3 %"], "  ", 0) == (
        "step 7  1 s  idle 2 %  work 3 %"
    )
    assert joined(["step 7  1 s", "idle 2 %", "work 3 %"], "  ", 21) == (
        "step 7  1 s  idle 2 %\n  work 3 %"
    )


def drawn(rows, width):
    return "\n".join(table(rows, width, head=str.upper))


def test_a_table_that_fits():
    assert drawn(ROWS, 80) == drawn(ROWS, 0) == (
        "SPLIT   STEP  BUBBLE  LAYERS\n"
        "naive     24  9.00 %  8,8,8,8,8,8,8,8,8,8\n"
        "chosen   7.5       -  8,8,8,8,8"
    )  # fmt: skip


def test_the_words_of_the_last_column_go_on_below():
    assert drawn([row | {"layers": f"{SPLIT},{SPLIT}"} for row in ROWS], 43) == (
        "SPLIT   STEP  BUBBLE  LAYERS\n"
        "naive     24  9.00 %  8,8,8,8,8,8,8,8,8,8,\n"
        "                      8,8,8,8,8,8,8,8,8,8\n"
        "chosen   7.5       -  8,8,8,8,8,8,8,8,8,8,\n"
        "                      8,8,8,8,8,8,8,8,8,8"
    )


def test_names_go_over_their_rows():
    rows = [{"a long name": name, "one": "1", "other": "22.5"} for name in ("first", "first", "x")]
    assert drawn(rows, 16) == (
        "A LONG NAME\n  ONE  OTHER\nfirst\n    1   22.5\n    1   22.5\nx\n    1   22.5"
    )


def test_what_is_left_goes_on_with_the_first_column_again():
    rows = [{"rank": str(r), "compute": "1.5", "bubble": "2", "overhead": "-"} for r in range(2)]
    assert drawn(rows, 21) == (
        "RANK  COMPUTE  BUBBLE\n   0      1.5       2\n   1      1.5       2\n\n"
        "RANK  OVERHEAD\n   0         -\n   1         -"
    )


def test_what_goes_on_below_is_told_apart_by_its_counts():
    """Below a sweep's table of 50 columns nine gains went on behind nine times v = 1."""
    rows = [{"v": "1", "m": m, "step": "2.5", "gain": "× 1.3"} for m in ("2", "4")]
    assert drawn(rows, 15) == (
        "V  M  STEP\n1  2   2.5\n1  4   2.5\n\nV  M  GAIN\n1  2  × 1.3\n1  4  × 1.3"
    )


@pytest.mark.parametrize(
    "cell", ["1", "-2.50", "+1.5%", "3.00 %", "1,024", "0.25 ±0.1", "-", "1e-05"]
)
def test_numbers_stand_at_the_right(cell):
    assert table([{"a long head": cell}])[1] == cell.rjust(len("a long head"))


@pytest.mark.parametrize("cell", ["1f1b", "8,8,8", "12 ms", "≤ 3", "× 1.3", "zb-v"])
def test_words_stand_at_the_left(cell):
    assert table([{"a long head": cell}])[1] == cell


def test_the_width_is_that_of_the_variable_or_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "33")
    assert columns() == 33
    monkeypatch.delenv("COLUMNS")
    assert columns() == 0  # the tests' output goes to no terminal
