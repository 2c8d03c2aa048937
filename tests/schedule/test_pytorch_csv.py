"""The schedule CSV as files have it."""

import pytest

from unbubble.errors import InputError
from unbubble.families import generate
from unbubble.schedule import format_csv, parse_csv


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_rows_end_as_they_do_on_any_system(newline):
    """Files of carriage returns alone got the message of Python's csv module."""
    schedule = generate("zb-h1", 3, 4)
    text = format_csv(schedule)
    assert parse_csv(text.replace("\n", newline)) == schedule
    assert parse_csv(newline.join(text.split())) == schedule


def test_cells_may_be_quoted_and_empty():
    assert parse_csv('"0F0",,"0B0",\n, 1F0 ,1B0\n\n\n') == generate("1f1b", 2, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it holds no action"),
        (",,\n\n", "it holds no action"),
        ("0F0,0B0\n\n1F0,1B0", "row 2 is empty"),
        ("0F0,0B0\n1F0,1X0", "row 2, column 2: '1X0' is not an action"),
        ('"0F0,0B0\n', "not a CSV file: unexpected end of data"),
        (f"0F{'9' * 300}", r"row 1, column 1: '0F9+'\.\.\. is too long for an action"),
        ("0F0,0B0\n0F1,0B1", "stage 0 is used on rank 0 and on rank 1"),
    ],
)
def test_what_is_no_schedule_is_refused(text, message):
    with pytest.raises(InputError, match=f"order.csv: {message}"):
        parse_csv(text, "order.csv")
