"""Quantities as people type them: times, sizes, rates and percentages, kept exact.

1.5ms 200us 0.4s 12      times: seconds as a fraction, or a plain number in the caller's unit
40GiB 80GB               sizes in bytes
400GB/s 990TFLOP/s       rates
5% 0.05                  fractions
"""

import re
from fractions import Fraction

from unbubble.errors import InputError, excerpt

SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_PREFIX = {**_DECIMAL, **_BINARY}
_MAX_DIGITS = 1000
_NUMBER = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)\s*(.*)", re.DOTALL
)


def number(value: str | int | float | Fraction, what: str = "value") -> Fraction:
    """An exact fraction from a plain number; a float means its shortest text."""
    if isinstance(value, (int, Fraction)):
        return _bounded(Fraction(value), value, what)
    amount, suffix = _split(str(value), what)
    if suffix:
        raise InputError(
            f"{what}: {value!r} has the unit {suffix!r} where a plain number is needed"
        )
    return amount


def time(text: str | int | float | Fraction, what: str = "time") -> tuple[Fraction, bool]:
    """A time of at least 0: the amount, and whether it carried a unit (then it is in seconds)."""
    if isinstance(text, (int, Fraction)):
        amount, suffix = _bounded(Fraction(text), text, what), ""
    else:
        amount, suffix = _split(str(text), what)
    if amount < 0:
        raise InputError(f"{what}: {excerpt(text)} is negative; a time is at least 0")
    if not suffix:
        return amount, False
    if suffix not in SECONDS:
        raise InputError(
            f"{what}: unknown unit {suffix!r} in {text!r}; use ns, us, ms, s, min or h"
        )
    return amount * SECONDS[suffix], True


def size(text: str | int, what: str = "size") -> int:
    """A size in bytes, rounded to whole bytes: 40GiB, 80GB, 1024."""
    amount = _scaled(str(text), "B", what, "40GiB or 80GB", bare=True)
    if amount < 0:
        raise InputError(f"{what}: {text} is negative; a size is at least 0")
    return round(amount)


def shown_size(size: float) -> str:
    """Bytes to four significant digits in the binary unit that fits them.

    >>> shown_size(6 * 2**30)
    '6 GiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def shown_time(seconds: float) -> str:
    """A time of three digits with the unit that fits it.

    >>> shown_time(0.0242)
    '24.2 ms'
    """
    if seconds == 0:
        return "0 s"
    for unit, size in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if abs(seconds) < 999.5 * size:  # three digits of more would be 1e+03
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:,.0f} s"


def handy_unit(length: float | Fraction, unit: str) -> tuple[str, int]:
    """The unit in which a length in `unit` is 10 or more, and how many of it make one of `unit`.

    Then its parts are handy too: a step of 3 s is 3,000 ms, as what it lost is some ms. Only
    seconds have smaller units; any other unit stays as it is.

    >>> handy_unit(0.0242, "s")
    ('ms', 1000)
    """
    if unit == "s":
        for smaller, factor in (("s", 1), ("ms", 1000), ("µs", 10**6), ("ns", 10**9)):
            if length * factor >= 10:
                return smaller, factor
    return unit, 1


def counted(number: int, noun: str) -> str:
    """So many of something.

    >>> counted(2, "microbatch")
    '2 microbatches'
    """
    ending = "" if number == 1 else "es" if noun.endswith("h") else "s"
    return f"{number} {noun}{ending}"


def percent(share: float | Fraction, decimals: int = 1, *, sign: bool = False) -> str:
    """A share in percent; nothing that rounds to 0 stands below it.

    >>> percent(Fraction(1, 8))
    '12.5%'
    """
    return f"{float(share):{'+' if sign else ''}z.{decimals}%}"


def rate(text: str, per_second_of: str, what: str = "rate") -> Fraction:
    """A rate above 0 in `per_second_of` (\"B\" or \"FLOP\") per second: 400GB/s, 990TFLOP/s."""
    amount = _scaled(str(text), f"{per_second_of}/s", what, f"400G{per_second_of}/s", bare=False)
    if amount <= 0:
        raise InputError(f"{what}: {text} must be above 0")
    return amount


def fraction(text: str | float, what: str = "fraction") -> Fraction:
    """A fraction: 5% or 0.05."""
    amount, suffix = _split(str(text), what)
    if suffix == "%":
        return amount / 100
    if suffix:
        raise InputError(f"{what}: {text!r} is not a fraction; write 5% or 0.05")
    return amount


def _split(text: str, what: str) -> tuple[Fraction, str]:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"{what}: {excerpt(text)!r} is not a finite number, or not one followed by a unit"
        )
    if len(match[1]) > _MAX_DIGITS:
        raise InputError(f"{what}: {excerpt(text)} has more than {_MAX_DIGITS} digits")
    return _bounded(Fraction(match[1]), text, what), match[2].strip()


def _bounded(amount: Fraction, text: object, what: str) -> Fraction:
    if abs(amount) > 10**30:
        raise InputError(f"{what}: {excerpt(text)} is too large; a number is at most 1e30")
    return amount


def _scaled(text: str, base: str, what: str, example: str, *, bare: bool) -> Fraction:
    amount, suffix = _split(text, what)
    if bare and not suffix:
        return amount
    if suffix.endswith(base) and (prefix := suffix.removesuffix(base)) in _PREFIX:
        return amount * _PREFIX[prefix]
    raise InputError(f"{what}: unknown unit in {text!r}; write it as {example}")
