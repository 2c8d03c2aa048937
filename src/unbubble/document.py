"""Document: a TOML or JSON file in which every value knows where it stands.

Files come from people and from other programs, so nothing in them is trusted: each reading method
checks and raises an InputError that names the file, the path of the key and what would work. A key
that stands in a table twice is refused, whatever the language: which of its values was meant?
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from unbubble import quantity
from unbubble.errors import InputError, excerpt, suggestion
from unbubble.files import read_text

T = TypeVar("T")

KINDS = {
    "unbubble_plan": "a plan",
    "unbubble_recording": "a recording of a run",
    "stages": "a costs file",
    "layers": "a costs file",
}
"""A key of each kind of file and what the file is then, the first that it has."""


def load(path: str | Path, what: str) -> "Value":
    """Read a file whose text begins with `{` as JSON, any other as TOML."""
    return parse(read_text(path, what), str(path), what)


def parse(text: str, source: str, what: str) -> "Value":
    """Like `load`, from the text; `source` stands for the file in messages."""
    if not text.strip():
        raise InputError(f"{source}: the file is empty; {what} was expected there")
    as_json = text.lstrip().startswith("{")
    try:
        raw = _json(text) if as_json else _toml(text)
    except (ValueError, RecursionError) as error:
        language = "JSON" if as_json else "TOML (nor JSON, which would begin with {)"
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{source}: not {language}: {reason}; {what} was expected there") from None
    found = next(
        (kind for key, kind in KINDS.items() if isinstance(raw, dict) and key in raw), what
    )
    if not what.startswith(found):
        raise InputError(f"{source}: it is {found}; {what} was expected there")
    if as_json:
        refuse_repeated(text, source)
    return Value(raw, f"{source}: ")


def _json(text: str) -> Any:
    import msgspec

    return msgspec.json.decode(text)


def refuse_repeated(text: str | bytes, source: str) -> None:
    """Raises InputError where a key stands in an object of a JSON text twice.

    The decoders keep the last value and say nothing. One more pass over the text, of which the time
    is small beside what is made of it.
    """
    import json

    try:
        json.loads(text, object_pairs_hook=_once)
    except _RepeatedError:
        problem = "a key stands somewhere twice"
        with suppress(RecursionError):
            path = _first_repeated(json.loads(text, object_pairs_hook=_Pairs))
            problem = f"{path}: the key stands there twice; give it once"
        raise InputError(f"{source}: {problem}") from None
    except RecursionError:
        raise InputError(f"{source}: not JSON: nested too deep") from None


class _RepeatedError(Exception):
    """A key stands twice somewhere."""


class _Pairs(list[tuple[str, Any]]):
    """An object with all of its keys."""


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise _RepeatedError


def _first_repeated(value: Any, path: str = "") -> str:
    """The path of the first key that stands twice; empty where none does."""
    children: list[tuple[str, Any]] = []
    if isinstance(value, _Pairs):
        seen = set()
        for key, child in value:
            step = f"{path}.{excerpt(key) or repr(key)}".lstrip(".")
            if key in seen:
                return step
            seen.add(key)
            children.append((step, child))
    elif isinstance(value, list):
        children = [(f"{path}[{i}]", child) for i, child in enumerate(value)]
    for step, child in children:
        if found := _first_repeated(child, step):
            return found
    return ""


def _toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


class Value:
    """A value and its path in the file, as in `costs.toml: stages[2].forward`."""

    __slots__ = ("path", "raw")

    def __init__(self, raw: Any, path: str):
        self.raw = raw
        self.path = path

    def error(self, problem: str) -> InputError:
        """The error to raise about this value."""
        separator = "" if self.path.endswith(": ") else ": "
        return InputError(f"{self.path}{separator}{problem}")

    @property
    def shown(self) -> str:
        """The value in a few characters."""
        try:
            return excerpt(repr(self.raw))
        except ValueError:  # an integer of thousands of digits
            return "a huge integer"

    def _child(self, key: str | int) -> str:
        if isinstance(key, int):
            return f"{self.path}[{key}]"
        return f"{self.path}{'' if self.path.endswith(': ') else '.'}{key}"

    def table(self, known: Iterable[str] = (), required: Iterable[str] = ()) -> "dict[str, Value]":
        """The table's values by key; with `known` any other key is an error."""
        if not isinstance(self.raw, dict):
            raise self.error(f"{self.shown} is not a table of keys and values")
        names = [*required, *known]
        for key in self.raw:
            if names and key not in names:
                raise self.error(f"unknown key {excerpt(key)!r}; {suggestion(key, names)}")
        for key in required:
            if key not in self.raw:
                raise self.error(f"the key {key!r} is missing")
        return {key: Value(raw, self._child(key)) for key, raw in self.raw.items()}

    def items(self) -> "list[Value]":
        """The list's values."""
        if not isinstance(self.raw, list):
            raise self.error(f"{self.shown} is not a list")
        return [Value(raw, self._child(i)) for i, raw in enumerate(self.raw)]

    def text(self, choices: Iterable[str] = ()) -> str:
        if not isinstance(self.raw, str):
            raise self.error(f"{self.shown} is not a text")
        known = list(choices)
        if known and self.raw not in known:
            raise self.error(f"{excerpt(self.raw)!r} is not known; known are {', '.join(known)}")
        return self.raw

    def flag(self) -> bool:
        if not isinstance(self.raw, bool):
            raise self.error(f"{self.shown} is neither true nor false")
        return self.raw

    def integer(self, least: int = 0, most: int = (1 << 62)) -> int:
        """An integer within bounds; 4.0 is 4."""
        raw = self.raw
        if isinstance(raw, float) and raw.is_integer():
            raw = int(raw)
        if isinstance(raw, bool) or not isinstance(raw, int):
            raise self.error(f"{self.shown} is not an integer")
        if not least <= raw <= most:
            bound = f"at least {least}" if raw < least else f"at most {most}"
            raise self.error(f"{self.shown} must be {bound}")
        return raw

    def number(self) -> Fraction:
        """A finite number, exact: a float means its shortest text. Texts may be fractions, 1/3."""
        if isinstance(self.raw, str) and self.raw.count("/") == 1 and len(self.raw) < 100:
            try:
                return Fraction(self.raw)
            except (ValueError, ZeroDivisionError):
                raise self.error(f"{self.shown} is not a fraction of two integers") from None
        return self.read(quantity.number)

    def time(self) -> tuple[Fraction, bool]:
        """A time of at least 0, and whether it carried a unit (then it is in seconds)."""
        if isinstance(self.raw, str) and "/" in self.raw:
            if (amount := self.number()) < 0:
                raise self.error(f"{self.raw} is negative; a time is at least 0")
            return amount, False
        return self.read(quantity.time)

    def size(self) -> int:
        """A size in bytes."""
        return self.read(quantity.size)

    def read(self, reader: Callable[[Any, str], T]) -> T:
        """Through one of the readers of `unbubble.quantity`."""
        if isinstance(self.raw, bool) or not isinstance(self.raw, (int, float, str)):
            raise self.error(f"{self.shown} is neither a number nor a text")
        return reader(self.raw, self.path)
