"""The ways a call ends badly, each with its exit status on the command line, and their words."""

from collections.abc import Callable, Iterable, Sequence
from errno import EDQUOT, EFBIG, EIO, ENOSPC

FULL = (ENOSPC, EDQUOT, EFBIG, EIO)
"""What a disk fails with that is full or broken: not the input's fault, though a file is named."""


class UnbubbleError(Exception):
    """Base of every error raised on purpose; the message is one sentence for a person."""

    exit_status = 1


class InputError(UnbubbleError, ValueError):
    """The input is wrong: what, where, the rule it breaks, what would work. Exit status 2."""

    exit_status = 2


class RunError(UnbubbleError, RuntimeError):
    """It ran and failed: a rank lost, gradients differ, a check broke. Exit status 1."""


def excerpt(value: object) -> str:
    """The first characters of what a message shows and may be of any length."""
    # hex: str refuses the longest integers
    text = hex(value) if isinstance(value, int) and abs(value) > 10**40 else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def some(items: Iterable[object]) -> str:
    """The first of what a message lists and may be of any number, and how many more there are.

    >>> some(range(11))
    '0, 1, 2, 3, 4, 5, 6, 7 and 3 more'
    """
    words = [excerpt(item) for item in items]
    return ", ".join(words[:8]) + (f" and {len(words) - 8} more" if len(words) > 8 else "")


def listed(words: Sequence[str]) -> str:
    """All of a few words.

    >>> listed(["F", "I", "W"])
    'F, I and W'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def bare(name: str) -> str:
    """The letters and digits of a name that is the same in any case and punctuation."""
    return "".join(c for c in name.lower() if c in "abcdefghijklmnopqrstuvwxyz0123456789")


def names_like(name: str, known: Iterable[str], key: Callable[[str], str] = str.lower) -> list[str]:
    """Up to three of the known names that are most like a mistyped one, the most alike first; two
    names of the same `key` are the same."""
    from difflib import get_close_matches

    names = {key(one): one for one in reversed([*known])}
    return [names[one] for one in get_close_matches(key(name)[:80], names, n=3, cutoff=0.5)]


def suggestion(name: str, known: Iterable[str], key: Callable[[str], str] = str.lower) -> str:
    """The end of a message about a name that is not known: the names like it, else all of them."""
    known = [*known]
    near = names_like(name, known, key)
    return f"did you mean {_or(near)}?" if near else f"known are {', '.join(known)}"


def _or(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
