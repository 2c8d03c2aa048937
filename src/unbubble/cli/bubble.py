"""unbubble bubble: the closed forms, instantly."""

from fractions import Fraction
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from unbubble.families import Family

_EXACT = "; `unbubble simulate` gives the exact value"


@click.command("bubble")
@shared.sizes
@shared.times
@click.option("--target", metavar="β", help="Bubble fraction to stay within: 5% or 0.05.")
@click.option("--speedup", metavar="RATIO",
              help="How much faster a schedule without bubbles was: 67/55 or 1.2.")  # fmt: skip
@click.option("--framework", metavar="NAME", help=f"Whose rule for m holds: {', '.join(RULES)}.")
@click.option("--schedule", metavar="NAME", help="Whose bubble time to give, from the times.")
@shared.json
def command(
    ranks: int | None,
    microbatches: int | None,
    virtual: int | None,
    target: str | None,
    speedup: str | None,
    framework: str | None,
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
    entry = None if schedule is None else _family(schedule)
    v = shared.count(1 if virtual is None else virtual, "v", "virtual stages", 1)
    if entry is not None:
        v = entry.stages_a_rank(virtual)
    rules = (framework or "any").lower()
    wanted = (
        None if target is None else microbatches_for(quantity.fraction(target, "--target"), p, v)
    )
    legal = None if wanted is None else next_legal(wanted, p, v, rules)
    idle = None if speedup is None else _idle(speedup)
    most = None if idle is None else most_microbatches(idle, p, v)
    m = microbatches if microbatches is not None else legal if legal is not None else most
    if m == 0 and microbatches is None:
        raise InputError(
            f"--speedup: {speedup} means that {percent(idle or Fraction(0))} was idle, and with "
            f"one microbatch no more than {percent(bubble_fraction(p, 1, v))} is"
        )
    if legal is None or microbatches is not None:
        m = shared.count(m, "m", "microbatches", 8)
    assert m is not None
    if entry is not None:
        entry.check_rule(p, m, v)
    fraction, overhead = bubble_fraction(p, m, v), bubble_overhead(p, m, v)
    least = next_legal(m, p, v, rules)
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
        "legal_rule": None if legal is None and framework is None else RULES[rules].words,
        "exact": v == 1 or m >= p,
        "unit": given.unit,
    }
    if framework is not None:
        answer["microbatches_legal"] = least
    if speedup is not None:
        answer |= {"idle_at_least": idle, "microbatches_at_most": most}
    if entry is not None or given.times:
        name = "1f1b" if v == 1 else "interleaved-1f1b"
        if entry is not None:
            name = entry.name.partition(":")[0]
        answer |= _timed(name, p, m, v, given)
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
    if not answer["exact"]:
        click.echo(f"m < p, so it idles more than that{_EXACT}")
    if framework is not None and microbatches is not None:
        verdict = "legal" if m == least else f"not legal, the next is {least}"
        click.echo(f"m = {m}          {verdict} ({RULES[rules].words})")
    if wanted is not None and legal is not None:
        click.echo(
            f"within {target}      m ≥ {wanted}"
            + (f", the next legal is {legal}" if legal != wanted else "")
            + f" ({RULES[rules].words})"
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
        if not answer["schedule_exact"]:
            click.echo(f"Here that is not so, so it is no more than an estimate{_EXACT}")


def _idle(speedup: str) -> Fraction:
    """The idle fraction of what a schedule without bubbles is `speedup` times as fast as."""
    above, _, below = speedup.partition("/")
    ratio = quantity.number(above, "--speedup")
    divisor = quantity.number(below, "--speedup") if below else Fraction(1)
    if divisor <= 0 or ratio / divisor <= 1:
        raise InputError(f"--speedup: {speedup} is not above 1, as in 67/55 or 1.2")
    return 1 - divisor / ratio


def _timed(name: str, p: int, m: int, v: int, given: shared.Given) -> dict[str, Any]:
    """The bubble time of a schedule for the given times of a whole rank."""
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
    form = FORMS[name]
    if (
        "backward" in known
        and "backward_weight" not in known
        and "W" in form.formula + form.assumes
    ):
        raise InputError(
            f"the bubble of {name}, {form.formula}, needs the parts of the backward; give "
            "--backward-input and --backward-weight"
        )
    idle = bubble_time(name, p, times, v, m)
    fraction, overhead = fraction_of_time(idle, m, times)
    return {
        "schedule": name,
        "bubble_time": idle,
        "schedule_bubble_fraction": fraction,
        "schedule_bubble_overhead": overhead,
        "formula": form.formula,
        "metric": form.metric,
        "assumes": form.assumes,
        "schedule_exact": form.exact(p, m, times),
        "source": form.source,
    }


def _family(schedule: str) -> "Family":
    """The family of that name; one without a closed form is refused."""
    from unbubble.families import family

    entry = family(schedule)
    if entry.name.partition(":")[0] not in FORMS:
        raise InputError(
            f"no closed form for the bubble of {schedule!r}; known are {', '.join(FORMS)}"
            " (`unbubble simulate` takes every schedule)"
        )
    return entry
