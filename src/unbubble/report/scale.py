"""Scale: ticks as people read them, in a unit that suits their size, and round marks on an axis."""

from fractions import Fraction
from math import floor, log10
from typing import NamedTuple

from unbubble import quantity
from unbubble.simulate import Timeline


class Scale(NamedTuple):
    """`unit` is what is written after a number (may be empty), `per_tick` a tick's length in it."""

    unit: str
    per_tick: Fraction

    def number(self, ticks: int | Fraction) -> float:
        return float(ticks * self.per_tick)

    def text(self, ticks: int | Fraction) -> str:
        """A time with its unit, to four significant digits or whole."""
        return f"{shown(self.number(ticks))} {self.unit}".rstrip()

    def marks(self, length: int | Fraction, most: int) -> list[tuple[float, str]]:
        """About `most` round times from 0 to `length` ticks: the place as a share, and the text."""
        whole = self.number(length)
        if whole <= 0:
            return [(0.0, "0")]
        step = round_step(whole / max(most, 1))
        decimals = max(0, -floor(log10(step)))
        return [
            (step * i / whole, f"{step * i:,.{decimals}f}")
            for i in range(int(whole / step * (1 + 1e-9)) + 1)
        ]


def scale_for(timeline: Timeline, length: float) -> Scale:
    """The scale of a timeline's ticks at which `length`, in its unit, is a handy number."""
    unit, factor = quantity.handy_unit(length, timeline.unit)
    return Scale(unit, Fraction(factor, timeline.ticks_per_unit))


def shown(value: float) -> str:
    """A number to four significant digits, never rounded above the point: 1,234,567 · 33 · 0.05."""
    if value == 0 or abs(value) < 1e-9:
        return "0"
    decimals = max(0, 3 - floor(log10(abs(value))))
    text = f"{value:,.{decimals}f}".replace("-", "−")
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float | Fraction, decimals: int = 1, *, sign: bool = False) -> str:
    """A share in percent, with a true minus."""
    return quantity.percent(share, decimals, sign=sign).replace("-", "−")


def round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, … times a power of ten that is at least `least`."""
    power = float(10.0 ** floor(log10(least)))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))
