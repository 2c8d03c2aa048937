"""Verdict: where more microbatches stop paying, whether the bubble is why, and what else is.

The classes of a step, each divided by m, add up to the time of a microbatch. What holds a measured
throughput back is the class that gained the most from the first row to the last, beyond what the
prediction gained at the same level.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

from unbubble.errors import InputError
from unbubble.quantity import percent, shown_size
from unbubble.sweep.rows import NOISY, PAYS, Row, Taken

FOLLOWS = (Fraction(1, 2), Fraction(3, 2))
"""The share of the predicted gain within which a measured one counts as following it."""

WORDS = {
    "compute": "compute",
    "bubble": "bubble",
    "imbalance": "imbalance",
    "communication": "exposed communication",
    "overhead": "overhead",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`stops_at` is the m from which a doubling no longer pays; `limited_by` "bubble", "memory", a
    class of the step, "other" or, where nothing was measured, "". `classes` are the shares of the
    step at `stops_at`, or else at the last m."""

    text: str
    stops_at: int | None = None
    limited_by: str = ""
    classes: dict[str, float] = field(default_factory=dict)


def verdict(rows: Sequence[Row], pays: Fraction = PAYS) -> Verdict:
    """Where more microbatches stop paying and, of a measured sweep, what limits it."""
    inside = [row for row in rows if row.fits]
    full = rows[-1] if not rows[-1].fits else None
    if inside[0].taken is not None:
        return _run(inside, full, pays)
    if inside[0].observed is None:
        return _predicted(inside, full, pays)
    if len(inside) == 1:
        raise InputError("a verdict needs measurements at two numbers of microbatches at least")
    facts, follows, why = _followed(inside)
    fell = _fell(inside) if follows else ""
    return Verdict(text=f"{facts}; {why}{fell}", limited_by="bubble" if follows else "other")


def _followed(rows: Sequence[Row]) -> tuple[str, bool, str]:
    """The gains from the first row to the last, whether the one follows the other, and in words."""
    seen, predicted = _over_all(rows)
    name, sizes = "m", [row.microbatches for row in rows]
    if _of_ranks(rows):
        name, sizes = "p", [row.ranks for row in rows]
    facts = (
        f"{name} = {sizes[0]} to {sizes[-1]}: observed × {float(seen):.2f}, the bubble model "
        f"predicts × {float(predicted):.2f}"
    )
    if predicted < 1:  # a loss, told by how much longer it takes: the longer, the less of a gain
        share = 2 - (1 / seen - 1) / (1 / predicted - 1)
    else:
        share = (seen - 1) / (predicted - 1) if predicted > 1 else Fraction(0)
    if share < FOLLOWS[0]:
        why = "not bubble-limited: every microbatch costs something that more of them do not hide"
        if _of_ranks(rows):
            why = "not bubble-limited: that many ranks cost or lack something that is no bubble"
    elif share <= FOLLOWS[1]:
        what = "gain" if predicted >= 1 else "loss"
        return facts, True, f"bubble-limited: the {what} is the bubble's"
    else:
        why = "more than the bubble gives: something else improves with m, so sweep a control too"
        if _of_ranks(rows):
            why = "more than the bubble gives: something else changes with the ranks"
    return facts, False, why


def _fell(rows: Sequence[Row]) -> str:
    """Where the measured throughput was at its most before the end, and the predicted was not."""
    best, last = max(rows, key=lambda row: row.observed or 0), rows[-1]
    if not best.observed or best.throughput >= last.throughput:
        return ""
    left = float((last.observed or 0) / best.observed)
    if left > 1 - NOISY:
        return ""
    name, size = ("p", best.ranks) if _of_ranks(rows) else ("m", best.microbatches)
    return f", up to {name} = {size}; from there on throughput fell to × {left:.2f}, which is not"


def _of_ranks(rows: Sequence[Row]) -> bool:
    """Whether it is the ranks that differ, and not the microbatches."""
    return rows[0].ranks != rows[-1].ranks


def _over_all(rows: Sequence[Row]) -> tuple[Fraction, Fraction]:
    """Observed and predicted gain from the first row to the last, from row to row."""
    seen = prod((row.observed_gain or Fraction(1) for row in rows[1:]), start=Fraction(1))
    return seen, rows[-1].throughput / rows[0].throughput


def _predicted(rows: Sequence[Row], full: Row | None, pays: Fraction) -> Verdict:
    if _of_ranks(rows):
        best = max(rows, key=lambda row: row.throughput)
        return Verdict(
            text=f"of p = {', '.join(str(row.ranks) for row in rows)} the fastest is p = "
            f"{best.ranks}; the bubble is {percent(best.bubble_fraction)} there",
            classes=_classes(best),
        )
    stops = len(rows) > 1 and rows[-1].gain is not None and rows[-1].gain < 1 + pays
    at = rows[-2] if stops else rows[-1]
    bubble = f"the bubble is {percent(at.bubble_fraction)} there"
    classes = _classes(at)
    cause, share = max(
        ((name, share) for name, share in classes.items() if name != "compute"),
        key=lambda pair: pair[1],
        default=("bubble", 0.0),
    )
    if cause != "bubble" and share >= pays:
        bubble += f", and {percent(share)} of the step {WORDS[cause]}"
    if stops:
        text = f"from m = {at.microbatches} on a doubling gains less than {_percent(pays)}"
    elif len(rows) == 1:
        only = "was simulated" if full is None else "fits"
        text = f"only m = {at.microbatches} {only}: nothing to compare it with"
    else:
        text = f"up to m = {at.microbatches} every doubling pays"
    return _bounded(
        Verdict(
            text=f"{text}; {bubble}",
            stops_at=at.microbatches if stops else None,
            classes=classes,
        ),
        at,
        None if stops else full,
    )


def _classes(row: Row) -> dict[str, float]:
    """The classes of the predicted step; none where a pipeline without a flush is too short."""
    try:
        return row.classes
    except InputError:
        return {}


def _bounded(found: Verdict, at: Row, full: Row | None) -> Verdict:
    """The verdict, where it is the memory that ends the sweep."""
    if full is None:
        return found
    return Verdict(
        text=f"{found.text}; m = {full.microbatches} does not fit: the fullest rank would hold "
        f"{shown_size(full.peak_bytes or 0)}",
        stops_at=at.microbatches,
        limited_by="memory",
        classes=found.classes,
    )


def _run(rows: Sequence[Row], full: Row | None, pays: Fraction) -> Verdict:
    """The verdict on steps that were taken for real."""
    last = rows[-1]
    gain = last.observed_gain
    stops = gain is not None and gain < 1 + pays
    at = rows[-2] if stops else last
    assert at.taken is not None
    taken = at.taken
    if gain is None:
        text, limited_by = f"only m = {at.microbatches} was run: nothing to compare it with", ""
    else:
        text = f"up to m = {at.microbatches} every doubling pays"
        if stops:
            text = (
                f"from m = {at.microbatches} on a doubling gains less than {_percent(pays)} "
                f"(observed × {float(gain):.3f}, predicted × {float(last.gain or 1):.3f})"
            )
        facts, follows, why = _followed(rows)
        limited_by = "bubble" if follows else _bent_by(rows)
        text += f"; {facts}; {why if follows else _explained(rows, limited_by)}"
    left = ", ".join(f"{percent(share)} {WORDS[name]}" for name, share in taken.classes.items())
    text += f"; at m = {at.microbatches} the step is {left}"
    if (noise := max(row.taken.noise for row in rows if row.taken)) > NOISY:
        text += (
            "; the machine is busy with something else: the odd and the even steps differ by up to "
            f"{percent(noise)}"
        )
    if (drift := max(abs(row.drift) for row in rows)) > NOISY:
        text += (
            f"; from launch to launch the machine changed by up to {percent(drift)}, so gains are "
            "taken within one"
        )
    found = Verdict(
        text=text,
        stops_at=at.microbatches if stops else None,
        limited_by=limited_by,
        classes=taken.classes,
    )
    return _bounded(found, at, None if stops else full)


def _beyond(rows: Sequence[Row]) -> dict[str, float]:
    """By how many seconds a microbatch's part in each class grew from the first row to the last,
    less what the prediction has it grow by, at the level of the measured steps."""
    first, last = rows[0], rows[-1]
    assert first.taken is not None
    assert last.taken is not None
    level = first.taken.step_s / float(first.step)
    found = {}
    for name in WORDS:
        measured = _part(last, last.taken, name) - _part(first, first.taken, name)
        predicted = [
            row.classes[name] * float(row.step) / row.microbatches for row in (first, last)
        ]
        found[name] = measured - level * (predicted[1] - predicted[0])
    return found


def _part(row: Row, taken: Taken, name: str) -> float:
    """Seconds of a microbatch in one class."""
    return taken.classes[name] * taken.step_s / row.microbatches


def _bent_by(rows: Sequence[Row]) -> str:
    """The class that takes what the bubble gave or, where more was gained, gave the most."""
    seen, predicted = _over_all(rows)
    beyond = _beyond(rows)
    return (max if seen < predicted else min)(beyond, key=lambda name: beyond[name])


def _explained(rows: Sequence[Row], cause: str) -> str:
    seen, predicted = _over_all(rows)
    milliseconds = 1e3 * abs(_beyond(rows)[cause])
    if seen < predicted:
        return (
            f"not bubble-limited: a microbatch's {_cause(cause)} grew by {milliseconds:.3g} ms "
            "more than predicted"
        )
    return (
        f"more than the bubble gives: a microbatch's {_cause(cause)} fell by {milliseconds:.3g} ms "
        "more than predicted"
    )


def _percent(part: Fraction) -> str:
    return f"{float(100 * part):.4g}%"


def _cause(name: str) -> str:
    return "compute, the kernels themselves," if name == "compute" else WORDS[name]
