"""unbubble bubble: the closed forms, instantly."""

from fractions import Fraction
from typing import Any

import click

from unbubble import quantity
from unbubble.cli import options as shared
from unbubble.cli.output import number, percent, print_json
from unbubble.errors import InputError
from unbubble.formulas import (
    FORMS,
    RULES,
    Times,
    bubble_fraction,
    bubble_overhead,
    bubble_time,
    fraction_of_time,
    microbatches_for,
    most_microbatches,
    next_legal,
)


@click.command("bubble")
@shared.sizes
@shared.times
@click.option("--target", metavar="β", help="Bubble fraction to stay within: 5% or 0.05.")
@click.option("--speedup", metavar="RATIO",
              help="How much faster a schedule without bubbles was: 67/55 or 1.2.")  # fmt: skip
@click.option("--framework", default="any", metavar="NAME", help="Whose rule for m holds.")
@click.option("--schedule", metavar="NAME", help="Whose bubble time to give, from the times.")
@shared.json
def command(
    ranks: int | None,
    microbatches: int | None,
    virtual: int | None,
    target: str | None,
    speedup: str | None,
    framework: str,
    schedule: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """The bubble of GPipe and 1F1B (v = 1) or interleaved 1F1B (v > 1) by closed form.

    Equal stages and no communication are assumed; `unbubble simulate` assumes nothing. With
    --target, the fewest microbatches that keep within it; -m may then be left out. With --speedup,
    how much must have been idle, and the most microbatches that idle so much.
    """
    p = shared.count(ranks, "p", "ranks")
    v = shared.count(1 if virtual is None else virtual, "v", "virtual stages", 1)
    wanted = (
        None if target is None else microbatches_for(quantity.fraction(target, "--target"), p, v)
    )
    legal = None if wanted is None else next_legal(wanted, p, v, framework)
    idle = None if speedup is None else _idle(speedup)
    most = None if idle is None else most_microbatches(idle, p, v)
    default = legal if legal is not None else most
    m = default or 0
    if microbatches is not None or not m:
        m = shared.count(microbatches, "m", "microbatches", 8)
    fraction, overhead = bubble_fraction(p, m, v), bubble_overhead(p, m, v)
    rule = RULES[framework].words if framework in RULES else None
    given = shared.given_times(options)
    answer: dict[str, Any] = {
        "ranks": p,
        "microbatches": m,
        "virtual_stages": v,
        "bubble_fraction": fraction,
        "bubble_overhead": overhead,
        "utilization": 1 - fraction,
        "microbatches_for_target": wanted,
        "microbatches_for_target_legal": legal,
        "legal_rule": None if legal is None else rule,
        "unit": given.unit,
    }
    if speedup is not None:
        answer |= {"idle_at_least": idle, "microbatches_at_most": most}
    if schedule is not None or given.times:
        answer |= _timed(schedule or ("1f1b" if v == 1 else "interleaved-1f1b"), p, m, v, given)
    if as_json:
        print_json(answer)
        return
    vm, divisor, both = (
        ("m", "m", "GPipe and 1F1B") if v == 1 else ("vm", "(vm)", "interleaved 1F1B")
    )
    click.echo(
        f"{both}, p = {p}, m = {m}, v = {v}; equal stages, no communication\n"
        f"bubble fraction {percent(fraction):>9}  idle / (ranks × makespan) = (p−1)/({vm}+p−1) = "
        f"{fraction}\n"
        f"bubble overhead {percent(overhead):>9}  idle / total work = (p−1)/{divisor} = "
        f"{overhead}\n"
        f"utilization     {percent(1 - fraction):>9}"
    )
    if wanted is not None and legal is not None:
        click.echo(
            f"within {target}      m ≥ {wanted}"
            + (f", the next legal is {legal}" if legal != wanted else "")
            + f" ({rule})"
        )
    if idle is not None:
        click.echo(f"× {speedup}       idle ≥ {percent(idle)}, so m ≤ {most}")
    if "bubble_time" in answer:
        form = FORMS[answer["schedule"]]
        click.echo(
            f"{answer['schedule']} idles {number(answer['bubble_time'])} {given.unit}".rstrip()
            + f" of the {form.metric} = {form.formula}: fraction "
            f"{percent(answer['schedule_bubble_fraction'])}, overhead "
            f"{percent(answer['schedule_bubble_overhead'])}; {form.assumes} ({form.source})"
        )


def _idle(speedup: str) -> Fraction:
    """The idle fraction of what a schedule without bubbles is `speedup` times as fast as."""
    above, _, below = speedup.partition("/")
    ratio = quantity.number(above, "--speedup")
    divisor = quantity.number(below, "--speedup") if below else Fraction(1)
    if divisor <= 0 or ratio / divisor <= 1:
        raise InputError(f"--speedup: {speedup} is not above 1, as in 67/55 or 1.2")
    return 1 - divisor / ratio


def _timed(schedule: str, p: int, m: int, v: int, given: shared.Given) -> dict[str, Any]:
    """The bubble time of a schedule for the given times of a whole rank."""
    name = _name(schedule)
    for key, value in given.times.items():
        if isinstance(value, list) or (key == "p2p" and value):
            raise InputError(
                f"--{key.replace('_', '-')}: the closed forms are for equal stages without "
                "communication; `unbubble simulate` takes the rest"
            )
    known = {key: value for key, value in given.times.items() if isinstance(value, Fraction)}
    times = Times(
        known.get("forward", Fraction(1)),
        known.get("backward_input", Fraction(1)),
        known.get("backward_weight", Fraction(1)),
        known.get("backward"),
        known.get("overlapped"),
    )
    if "backward" in known and "backward_weight" not in known and "W" in FORMS[name].formula:
        raise InputError(
            f"the bubble of {name}, {FORMS[name].formula}, needs the parts of the backward; give "
            "--backward-input and --backward-weight"
        )
    idle = bubble_time(name, p, times, v)
    fraction, overhead = fraction_of_time(idle, m, times)
    return {
        "schedule": name,
        "bubble_time": idle,
        "schedule_bubble_fraction": fraction,
        "schedule_bubble_overhead": overhead,
        "formula": FORMS[name].formula,
        "metric": FORMS[name].metric,
        "assumes": FORMS[name].assumes,
        "source": FORMS[name].source,
    }


def _name(schedule: str) -> str:
    """The form's name, case, punctuation and PyTorch's prefix ignored."""

    def key(name: str) -> str:
        return "".join(filter(str.isalnum, name.lower())).removeprefix("schedule")

    for name in FORMS:
        if key(name) == key(schedule):
            return name
    raise InputError(
        f"no closed form for the bubble of {schedule!r}; known are {', '.join(FORMS)}"
        " (`unbubble simulate` takes every schedule)"
    )
