"""Measurements that a sweep is compared with, as people type them: 8:8077,16:7987."""

from collections.abc import Iterable
from fractions import Fraction

from unbubble import quantity
from unbubble.errors import InputError


def measurements(
    throughput: str | None, seconds: str | None, control: str | None
) -> dict[int, Fraction] | None:
    """Measured throughput by m (or p), divided by the control's; None where nothing was given."""
    if throughput is not None and seconds is not None:
        raise InputError("--throughput and --seconds both give measurements; use one")
    if throughput is None and seconds is None:
        if control is not None:
            raise InputError("--control goes with --throughput or --seconds")
        return None
    if throughput is not None:
        found = _series(throughput, "--throughput")
    else:
        found = {m: 1 / time for m, time in _series(seconds or "", "--seconds").items()}
    beside = _series(control, "--control") if control is not None else {}
    if control is not None and beside.keys() != found.keys():
        raise InputError(
            f"--control has m = {sizes(beside)} and the sweep {sizes(found)}; they must be the same"
        )
    if len(found) < 2:
        raise InputError("a verdict needs measurements at two numbers of microbatches at least")
    return {m: value / beside.get(m, 1) for m, value in found.items()}


def sizes(measured: Iterable[int]) -> str:
    """The m (or p) that were measured."""
    return ", ".join(map(str, sorted(measured)))


def _series(text: str, option: str) -> dict[int, Fraction]:
    """Values above 0 by m, as in 8:8077,16:7987."""
    found: dict[int, Fraction] = {}
    for part in text.split(","):
        m, colon, value = part.partition(":")
        if not colon or not m.strip().isdecimal() or len(m) > 9 or int(m) < 1:
            raise InputError(f"{option}: {part[:40]!r} is not M:X, as in 8:8077")
        if int(m) in found:
            raise InputError(
                f"{option}: m = {int(m)} is given twice, the second time as {part[:40]!r}; give "
                "one value for each"
            )
        found[int(m)] = quantity.number(value, option)
        if found[int(m)] <= 0:
            raise InputError(f"{option}: {part[:40]!r} must be above 0")
    return found
