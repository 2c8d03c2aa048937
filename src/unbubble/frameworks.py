"""Frameworks: which schedules and numbers of microbatches each takes, in words and as code."""

from collections.abc import Callable
from typing import NamedTuple

from unbubble.errors import InputError, suggestion


class Rule(NamedTuple):
    """Which numbers of microbatches a framework takes: in words, and `least`, the smallest legal
    one from m on, of m, p, v, the name of the schedule ("" for 1F1B, interleaved where v > 1) and
    the microbatch group of an interleaved one (0: as many as there are ranks). `has` are the
    schedules that it runs, none where it runs any."""

    words: str
    least: Callable[[int, int, int, str, int], int]
    has: tuple[str, ...] = ()


def _grouped(m: int, p: int, v: int, schedule: str, group: int) -> int:
    """Megatron's: p ≤ group ≤ m, and the last group is whole or holds p at least."""
    if v == 1 or schedule not in ("", "interleaved-1f1b"):
        return m
    size = max(p, group)
    rest = max(m, size) % size
    return max(m, size) if rest == 0 or rest >= p else m - rest + p


def _pytorch(m: int, p: int, v: int, schedule: str, group: int) -> int:
    schedule = schedule or ("1f1b" if v == 1 else "interleaved-1f1b")
    if schedule not in ("interleaved-1f1b", "interleaved-zb"):
        return max(m, {"1f1b": p, "dualpipe-v": p * v}.get(schedule, 1))
    rounds, rest = divmod(m, p)
    if rounds == 0:
        return m
    # from the start of a round of p on every multiple of the rounds, up to the next round
    return rounds * p + min(-(-rest // rounds) * rounds, p if rest else 0)


def _nanotron(m: int, p: int, v: int, schedule: str, group: int) -> int:
    return m if schedule == "gpipe" else max(m, p - 1)


RULES: dict[str, Rule] = {
    "any": Rule("interleaved: m a multiple of the group size, p", _grouped),
    "megatron": Rule(
        "Megatron-LM: any m; interleaved: m mod the group size (p by default) is 0 or at least p",
        _grouped,
        ("1f1b", "interleaved-1f1b"),
    ),
    "pytorch": Rule(
        "PyTorch: 1F1B m ≥ p; interleaved: m a multiple of max(1, ⌊m/p⌋); DualPipe-V: m ≥ 2p; "
        "others any m",
        _pytorch,
    ),
    "nanotron": Rule(
        "nanotron: 1F1B m ≥ p−1; it has no interleaved schedule", _nanotron, ("1f1b", "gpipe")
    ),
    "deepspeed": Rule(
        "DeepSpeed: any m; it has no interleaved schedule",
        lambda m, p, v, schedule, group: m,
        ("1f1b",),
    ),
    "maxtext": Rule(
        "MaxText: m a multiple of p for circular pipelines",
        lambda m, p, v, schedule, group: m if v == 1 else -(-m // p) * p,
    ),
}
"""By framework; "any" is the rule that is legal in all of them that interleave."""

CALLED = {
    "torch": "pytorch", "torchtitan": "pytorch", "automodel": "pytorch",
    "megatron-lm": "megatron", "megatron-core": "megatron", "megatron-bridge": "megatron",
    "nemo": "megatron", "verl": "megatron", "ms-swift": "megatron", "gpt-neox": "deepspeed",
}  # fmt: skip
"""Frameworks that run on another's pipeline."""


def next_legal(
    microbatches: int,
    ranks: int,
    virtual: int = 1,
    framework: str = "any",
    *,
    schedule: str = "",
    group: int = 0,
) -> int:
    """The smallest legal number of microbatches that is at least the given one, under a schedule
    (1F1B, or interleaved where v > 1) with a microbatch group (p where it is 0).

    Raises InputError for a framework that is not known or does not have the schedule.
    """
    rules = CALLED.get(framework, framework)
    if rules not in RULES:
        raise InputError(f"no rule is known for {framework!r}; {suggestion(framework, RULES)}")
    rule = RULES[rules]
    name = schedule or ("1f1b" if virtual == 1 else "interleaved-1f1b")
    if rule.has and name not in (*rule.has, "naive"):
        raise InputError(f"{framework} does not have {name}; it has {' and '.join(rule.has)}")
    return rule.least(max(1, microbatches), ranks, virtual, schedule, group)
