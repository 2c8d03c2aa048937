"""unbubble bubble: the closed forms, instantly."""

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from unbubble import quantity
from unbubble.cli import options as shared
from unbubble.cli.output import Clock, number, print_json, say
from unbubble.errors import InputError
from unbubble.formulas import (
    BY_SIZES,
    FORMS,
    Times,
    bubble_fraction,
    bubble_overhead,
    bubble_time,
    fraction_of_time,
    interleaved_warmup,
    microbatches_for,
    most_microbatches,
    peak_in_flight,
)
from unbubble.frameworks import RULES, Rule, next_legal, rule_of
from unbubble.quantity import percent

if TYPE_CHECKING:
    from unbubble.families import Family

_MOST_LISTED = 1 << 14
_EXACT = "; `unbubble simulate` gives the exact value"


@click.command("bubble")
@shared.sizes
@shared.times
@click.option("--global-batch", type=int, metavar="N", help="Samples of a step, which say m.")
@click.option("--micro-batch", type=int, metavar="N", help="Samples of a microbatch [default: 1].")
@click.option("--dp", type=int, metavar="N", help="Data-parallel replicas [default: 1].")
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
    global_batch: int | None,
    micro_batch: int | None,
    dp: int | None,
    target: str | None,
    speedup: str | None,
    framework: str | None,
    schedule: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """The bubble of GPipe and 1F1B (v = 1) or interleaved 1F1B (v > 1) by closed form.

    Equal stages and no communication are assumed; `unbubble simulate` assumes nothing. With
    --schedule, the bubble of that one. A global batch makes m = N / (dp × micro-batch), or with -m
    microbatches of N / (dp × m) samples. With --target, the fewest microbatches that keep within
    it; -m may then be left out. With --speedup, how much must have been idle, and the most
    microbatches that idle so much.
    """
    p = shared.count(ranks, "p", "ranks")
    microbatches, samples = _of_batch(microbatches, global_batch, micro_batch, dp)
    entry = None if schedule is None else _family(schedule)
    v = shared.count(1 if virtual is None else virtual, "v", "virtual stages", 1)
    rules = "any" if framework is None else framework
    known = rule_of("pytorch" if framework is None else rules)  # the families' own are PyTorch's
    name = known.default[v > 1]
    if entry is not None:
        v = entry.stages_a_rank(virtual)
        name = entry.base
    given = shared.given_times(options)
    times = _times(name, given)
    wanted = None if target is None else _wanted(target, name, p, v, times)
    legal = None if wanted is None else _least_legal(wanted, p, v, rules, entry)
    idle = None if speedup is None else _idle(speedup)
    most = None if idle is None else _most(idle, name, p, v, times)
    m = microbatches if microbatches is not None else legal if legal is not None else most
    if legal is None or microbatches is not None:
        m = shared.count(m, "m", "microbatches", 8)
    assert m is not None
    if entry is not None and (microbatches is not None or most is None):
        entry.check_rule(p, m, v)  # what idles as long as was measured is a bound, legal or not
    least = _least_legal(m, p, v, rules, entry)
    fraction, overhead, exact = bubble_fraction(p, m, v), bubble_overhead(p, m, v), v == 1 or m >= p
    timed = _timed(name, p, m, v, times) if entry is not None or given.times else {}
    if name not in BY_SIZES:
        fraction, overhead = timed["schedule_bubble_fraction"], timed["schedule_bubble_overhead"]
        exact = timed["schedule_exact"]
    group = _group(p, m, known, entry)
    rule = rule_of(rules).words
    if framework is None and entry is not None and (entry.preset or name != "interleaved-1f1b"):
        rule = f"{entry.name}: {entry.needs}"
    answer: dict[str, Any] = {
        "ranks": p,
        "microbatches": m,
        "virtual_stages": v,
        "global_batch": m * samples if samples is not None else None,
        "bubble_fraction": fraction,
        "bubble_overhead": overhead,
        "utilization": 1 - fraction,
        "microbatches_for_target": wanted,
        "microbatches_for_target_legal": legal,
        "legal_rule": None if legal is None and framework is None else rule,
        "exact": exact,
        "in_flight": _in_flight(name, p, m, v, group),
        "warmup_forwards": _warmup(name, p, m, v, group),
        "unit": given.unit,
        **timed,
    }
    if framework is not None:
        answer |= {"microbatches_legal": least, "legal": m == least}
        if m != least and known is RULES["megatron"] and m >= p:
            from unbubble.families.interleaved import least_group

            answer["group_legal"] = least_group(p, m)
    if speedup is not None:
        answer |= {"idle_at_least": idle, "microbatches_at_most": most}
    if as_json:
        print_json(answer)
        return
    _print(
        answer,
        name,
        of_family=entry is not None,
        m_given=microbatches is not None,
        target=target,
        speedup=speedup,
    )


def _print(
    answer: Mapping[str, Any],
    name: str,
    *,
    of_family: bool,
    m_given: bool,
    target: str | None,
    speedup: str | None,
) -> None:
    """The answer for people; `of_family`: one was named, and it is not about all that share it."""
    p, m, v = answer["ranks"], answer["microbatches"], answer["virtual_stages"]
    fraction, overhead = answer["bubble_fraction"], answer["bubble_overhead"]
    rule = answer["legal_rule"]
    base = name
    of_total, of_work = f"idle / {FORMS[base].metric}", "idle / work"
    if by_sizes := name in BY_SIZES:
        vm, divisor = ("m", "m") if v == 1 else ("vm", "(vm)")
        of_total = f"idle / (ranks × makespan) = (p−1)/({vm}+p−1) = {fraction}"
        of_work = f"idle / total work = (p−1)/{divisor} = {overhead}"
        name = base.replace("-1f1b", " 1F1B")
        if v == 1 and base in ("1f1b", "gpipe"):
            name = "GPipe and 1F1B"
    say(
        f"{name}, p = {p}, m = {m}, v = {v}; equal stages, no communication\n"
        f"bubble fraction {percent(fraction, 2):>9}  {of_total}\n"
        f"bubble overhead {percent(overhead, 2):>9}  {of_work}\n"
        f"utilization     {percent(1 - fraction, 2):>9}"
    )
    if (batch := answer["global_batch"]) is not None:
        say(f"global batch    {batch:>9}  m × dp × micro-batch = {m} × {batch // m}")
    if (held := answer["in_flight"]) is not None:
        beside = ", under GPipe all" if not of_family and base == "1f1b" else ""
        say(f"in flight       {number(held):>9}  microbatches on the fullest rank{beside}")
    if v > 1 and (warmup := answer["warmup_forwards"]):
        ahead = f"{','.join(map(str, warmup[:8]))}{',…' if p > 8 else ''}"
        say(f"warm-up         {ahead} forwards of a stage on rank 0,1,… before 1F1B begins")
    if by_sizes and not answer["exact"]:
        say(f"m < p, so it idles more than that{_EXACT}")
    if m_given and "legal" in answer:
        least = answer["microbatches_legal"]
        verdict = "legal" if m == least else f"not legal, the next is {least}"
        if "group_legal" in answer:
            verdict += f"; with --schedule interleaved:group={answer['group_legal']} it is"
        say(f"m = {m}          {verdict} ({rule})")
    if target is not None:
        wanted, legal = answer["microbatches_for_target"], answer["microbatches_for_target_legal"]
        first = wanted == FORMS[base].least(p) > 1
        say(
            f"within {target}      m ≥ {wanted}"
            + (", of fewer the closed form does not tell" if first else "")
            + (f", the next legal is {legal}" if legal != wanted else "")
            + f" ({rule})"
        )
    if speedup is not None:
        idle = percent(answer["idle_at_least"], 2)
        say(f"× {speedup}       idle ≥ {idle}, so m ≤ {answer['microbatches_at_most']}")
    if "bubble_time" in answer:
        clock = Clock.suiting(answer["bubble_time"], answer["unit"])
        say(
            f"{answer['schedule']} idles {clock.text(answer['bubble_time'])} of the "
            f"{answer['metric']} = {answer['formula']}: fraction "
            f"{percent(answer['schedule_bubble_fraction'], 2)}, overhead "
            f"{percent(answer['schedule_bubble_overhead'], 2)}; {answer['assumes']} "
            f"({answer['source']})"
        )
        if not answer["schedule_exact"]:
            say(f"Here that is not so, so it is no more than an estimate{_EXACT}")


def _of_batch(
    microbatches: int | None, batch: int | None, micro_batch: int | None, dp: int | None
) -> tuple[int | None, int | None]:
    """m, and the samples of a microbatch over all replicas (None where nothing says them)."""
    for option, value in (("global-batch", batch), ("micro-batch", micro_batch), ("dp", dp)):
        if value is not None and not 1 <= value <= shared.MAX_COUNT:
            raise InputError(f"--{option} is {value}; it is from 1 to {shared.MAX_COUNT}")
    if batch is None:
        given = micro_batch is not None or dp is not None
        return microbatches, (micro_batch or 1) * (dp or 1) if given else None
    if microbatches is not None and micro_batch is not None:
        raise InputError(f"--global-batch {batch} and -m {microbatches} both say m; use one")
    replicas = dp or 1
    if microbatches is None:
        samples = (micro_batch or 1) * replicas
        _whole(batch, samples, "dp × micro-batch", "m would be no whole number")
        return batch // samples, samples
    m = shared.count(microbatches, "m", "microbatches")
    _whole(batch, m * replicas, "dp × m", "microbatches would not be of one size")
    return m, batch // m


def _whole(batch: int, divisor: int, of: str, otherwise: str) -> None:
    """Refuse a global batch that cannot be cut evenly."""
    if batch % divisor:
        near = [n for n in (batch // divisor * divisor, -(-batch // divisor) * divisor) if n]
        raise InputError(
            f"--global-batch {batch} is no multiple of {of} = {divisor}, so {otherwise}; the "
            f"nearest that are: {' or '.join(map(str, near))}"
        )


def _wanted(target: str, name: str, p: int, v: int, times: Times) -> int:
    """The fewest microbatches for which a schedule's closed form holds and is within the target."""
    form = FORMS[name]
    beta = quantity.fraction(target, "--target")
    wanted = max(microbatches_for(beta, p, v, _length(name, p, v, times)), form.least(p))
    if form.only and not form.exact(p, wanted, times):
        raise InputError(
            f"--target: {name} would need m = {wanted} for {target}, and its closed form is for "
            f"{form.assumes}; `unbubble simulate` takes any"
        )
    return wanted


def _most(idle: Fraction, name: str, p: int, v: int, times: Times) -> int:
    """The most microbatches with which a schedule is idle so long."""
    length = _length(name, p, v, times)
    most = most_microbatches(idle, p, v, length)
    if not most:
        raise InputError(
            f"--speedup means that {percent(idle, 2)} was idle, and with one microbatch no more "
            f"than {percent(length / (1 + length), 2)} is"
        )
    return most


def _length(name: str, p: int, v: int, times: Times) -> Fraction:
    """The bubble in microbatches of work."""
    if name in BY_SIZES:
        return Fraction(p - 1, v)
    idle = bubble_time(name, p, times, v, FORMS[name].least(p))
    return fraction_of_time(idle, 1, times)[1]


def _least_legal(m: int, p: int, v: int, rules: str, entry: "Family | None") -> int:
    """The smallest number of microbatches from m on that framework and schedule allow."""
    if entry is None:
        return next_legal(m, p, v, rules)
    name, group = entry.base, int(dict(entry.preset).get("group", 0))
    while True:
        framework = next_legal(m, p, v, rules, schedule=name, group=group)
        if (m := entry.next_legal(p, framework, v)) == framework:
            return m


def _in_flight(name: str, p: int, m: int, v: int, group: int) -> Fraction | None:
    """Microbatches of a whole rank that the fullest one holds; None where no form is known."""
    try:
        return peak_in_flight(name, p, m, v, group=group)
    except InputError:
        return None


def _group(p: int, m: int, rule: Rule, entry: "Family | None") -> int:
    """The microbatch group of an interleaved schedule: that of its options, or the framework's."""
    chosen = dict(entry.preset) if entry is not None else {}
    if "rule" in chosen:
        rule = rule_of(str(chosen["rule"]))
    return int(chosen.get("group", rule.group(p, m)))


def _warmup(name: str, p: int, m: int, v: int, group: int) -> list[int] | None:
    """Forwards of a stage that each rank runs before it alternates; None for other schedules."""
    if name not in ("1f1b", "interleaved-1f1b") or p > _MOST_LISTED:
        return None
    if name == "1f1b":
        return [min(p - 1 - rank, m) for rank in range(p)]
    return [min(interleaved_warmup(p, v, rank, group), v * m) for rank in range(p)]


def _idle(speedup: str) -> Fraction:
    """The idle fraction of what a schedule without bubbles is `speedup` times as fast as."""
    above, _, below = speedup.partition("/")
    ratio = quantity.number(above, "--speedup")
    divisor = quantity.number(below, "--speedup") if below else Fraction(1)
    if divisor <= 0 or ratio / divisor <= 1:
        raise InputError(f"--speedup: {speedup} is not above 1, as in 67/55 or 1.2")
    return 1 - divisor / ratio


def _times(name: str, given: shared.Given) -> Times:
    """The given times of a whole rank, as a closed form takes them."""
    for key, value in given.times.items():
        if isinstance(value, list) or (key == "p2p" and value):
            raise InputError(
                f"{shared.flag(key)}: the closed forms are for equal stages without "
                "communication; `unbubble simulate` takes the rest"
            )
    known = {key: value for key, value in given.times.items() if isinstance(value, Fraction)}
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
    return form.of(
        Times(
            known.get("forward", Fraction(1)),
            known.get("backward_input", Fraction(1)),
            known.get("backward_weight", Fraction(1)),
            known.get("backward"),
            known.get("overlapped"),
        )
    )


def _timed(name: str, p: int, m: int, v: int, times: Times) -> dict[str, Any]:
    """The bubble time of a schedule for the given times of a whole rank."""
    form = FORMS[name]
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
    if entry.base not in FORMS:
        raise InputError(
            f"no closed form for the bubble of {schedule!r}; known are {', '.join(FORMS)}"
            " (`unbubble simulate` takes every schedule)"
        )
    return entry
