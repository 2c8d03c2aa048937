"""Documents: every value knows where it stands, and says what is wrong there."""

from contextlib import suppress
from fractions import Fraction
from time import process_time

import pytest

from unbubble.document import load, parse
from unbubble.errors import InputError


def value(text):
    return parse(f"x = {text}", "a.toml", "a file").table()["x"]


def test_json_and_toml_are_told_apart_by_the_first_sign(tmp_path):
    assert parse(' {"x": [1]}', "a", "a file").table()["x"].items()[0].raw == 1
    (tmp_path / "a.json").write_text("x = [1]\n")
    assert load(tmp_path / "a.json", "a file").table()["x"].items()[0].raw == 1


def test_paths_lead_to_the_value():
    inner = parse("[[a]]\nb = {c = [3]}", "a.toml", "a file").table()["a"].items()[0].table()
    leaf = inner["b"].table()["c"].items()[0]
    assert leaf.path == "a.toml: a[0].b.c[0]"
    assert str(leaf.error("no")) == "a.toml: a[0].b.c[0]: no"


def test_what_is_right_is_read():
    assert value("4.0").integer() == 4
    assert value("'1/3'").number() == Fraction(1, 3)
    assert value("0.1").number() == Fraction(1, 10)
    assert value("'1.5ms'").time() == (Fraction(3, 2000), True)
    assert value("'2/3'").time() == (Fraction(2, 3), False)
    assert value("'4KiB'").size() == 4096
    assert value("true").flag() is True
    assert value("'b'").text(["a", "b"]) == "b"


@pytest.mark.parametrize(
    ("text", "read", "message"),
    [
        ("1.5", lambda v: v.integer(), "a.toml: x: 1.5 is not an integer"),
        ("true", lambda v: v.integer(), "a.toml: x: True is not an integer"),
        ("-1", lambda v: v.integer(), "a.toml: x: -1 must be at least 0"),
        ("9", lambda v: v.integer(1, 8), "a.toml: x: 9 must be at most 8"),
        ("true", lambda v: v.number(), "a.toml: x: True is neither a number nor a text"),
        ("'1/x'", lambda v: v.number(), "a.toml: x: '1/x' is not a fraction of two integers"),
        ("'-1/2'", lambda v: v.time(), "a.toml: x: -1/2 is negative; a time is at least 0"),
        ("1", lambda v: v.text(), "a.toml: x: 1 is not a text"),
        ("'c'", lambda v: v.text(["a", "b"]), "a.toml: x: 'c' is not known; known are a, b"),
        ("1", lambda v: v.flag(), "a.toml: x: 1 is neither true nor false"),
        ("1", lambda v: v.items(), "a.toml: x: 1 is not a list"),
        ("1", lambda v: v.table(), "a.toml: x: 1 is not a table of keys and values"),
        ("{b = 1}", lambda v: v.table(["a"]), "a.toml: x: unknown key 'b'; known are a"),
        ("{}", lambda v: v.table([], ["a"]), "a.toml: x: the key 'a' is missing"),
        (f"'{'y' * 99}'", lambda v: v.number(), f"a.toml: x: '{'y' * 37}...' is not a finite"),
    ],
)
def test_what_is_wrong_is_named(text, read, message):
    with pytest.raises(InputError) as caught:
        read(value(text))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"a": 1, "a": 2}', "a"),
        ('{"a": [{"b": 1}, {"b": 1, "c": 2, "b": 1}]}', "a[1].b"),
        ('{"a": {"b": {"c": [[], [{"\\u0064": 1, "d": 2}]]}}}', "a.b.c[1][0].d"),
        ('{"a": {"b": {"c": 1, "c": 2}}, "a": 3}', "a"),
        ('{"a": 1, "": 2, "": 3}', "''"),
    ],
)
def test_a_key_that_stands_twice_is_refused(text, path):
    """The last value counted and nothing was said, in JSON; TOML refuses it by itself."""
    with pytest.raises(InputError) as caught:
        parse(text, "a.json", "a file")
    assert str(caught.value) == f"a.json: {path}: the key stands there twice; give it once"


@pytest.mark.parametrize("text", ['{"a": {"b": 1}, "b": {"b": 1}}', '{"a": ["a", "a", ":a"]}'])
def test_the_same_key_elsewhere_is_another(text):
    assert parse(text, "a.json", "a file").table()


@pytest.mark.parametrize("inner", ["1", '{"b": 1, "b": 2}'])
def test_however_deep_a_key_stands_there_is_no_other_error(inner):
    """The two decoders give up at different depths."""
    for depth in (1, *range(800, 1000), 100_000):
        text = '{"a": ' + "[" * depth + inner + "]" * depth + "}"
        with suppress(InputError):
            parse(text, "a.json", "a file")


def test_a_large_file_is_looked_through_in_no_time():
    rows = ",".join(['{"name": "0F0,0B0", "time": 1}'] * 100_000)
    text = f'{{"rows": [{rows}]}}'
    started = process_time()
    parse(text, "a.json", "a file")
    assert process_time() - started < 2
