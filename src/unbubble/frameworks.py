"""Frameworks: which schedules and numbers of microbatches each takes, in words and as code."""

from collections.abc import Callable
from typing import NamedTuple

from unbubble.errors import InputError, bare, excerpt, listed, names_like, suggestion


class Rule(NamedTuple):
    """Which numbers of microbatches a framework takes: in words, and `least`, the smallest legal
    one from m on, of m, p, v, the name of the schedule and the microbatch group of an interleaved
    one (0: the framework's own). `has` are the schedules that it runs, none where it runs any;
    `default` the one that it takes with one stage a rank, and with several; `group` the microbatch
    group of p and m where none is given; `interleaves_from` the fewest ranks that it interleaves.
    """

    words: str
    least: Callable[[int, int, int, str, int], int]
    has: tuple[str, ...] = ()
    default: tuple[str, str] = ("1f1b", "interleaved-1f1b")
    group: Callable[[int, int], int] = lambda p, m: p
    interleaves_from: int = 1


def _grouped(m: int, p: int, v: int, schedule: str, group: int) -> int:
    """Megatron's: p ≤ group ≤ m, and the last group is whole or holds p at least."""
    if schedule != "interleaved-1f1b":
        return m
    size = max(p, group)
    rest = max(m, size) % size
    return max(m, size) if rest == 0 or rest >= p else m - rest + p


def _pytorch(m: int, p: int, v: int, schedule: str, group: int) -> int:
    if schedule not in ("interleaved-1f1b", "interleaved-zb"):
        return max(m, {"1f1b": p, "dualpipe-v": p * v}.get(schedule, 1))
    rounds, rest = divmod(m, p)
    if rounds == 0:
        return m
    # from the start of a round of p on every multiple of the rounds, up to the next round
    return rounds * p + min(-(-rest // rounds) * rounds, p if rest else 0)


def _by_rounds(p: int, m: int) -> int:
    return m // max(1, m // p)


_BY_PYTORCH = (
    "1f1b", "gpipe", "interleaved-1f1b", "looped-bfs", "interleaved-zb", "zbv-zero-bubble",
    "dualpipe-v",
    # as CSV
    "eager-1f1b", "zb-1p", "zb-2p", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min",
)  # fmt: skip

RULES: dict[str, Rule] = {
    "any": Rule("any m; interleaved: m a multiple of the group size, p", _grouped),
    "megatron": Rule(
        "Megatron-LM: any m; interleaved: m mod the group size (p by default) is 0 or at least p, "
        "and p > 2 where p2p communication is not overlapped",
        _grouped,
        ("1f1b", "interleaved-1f1b"),
        interleaves_from=2,
    ),
    "pytorch": Rule(
        "PyTorch: 1F1B m ≥ p; interleaved: m a multiple of max(1, ⌊m/p⌋); DualPipe-V: m ≥ 2p; "
        "others any m",
        _pytorch,
        _BY_PYTORCH,
        group=_by_rounds,
    ),
    "automodel": Rule(
        "NeMo Automodel: m ≥ p, and PyTorch's rules; interleaved: m a multiple of ⌊m/p⌋; "
        "DualPipe-V: m ≥ 2p",
        lambda m, p, v, schedule, group: _pytorch(max(m, p), p, v, schedule, group),
        _BY_PYTORCH,
        group=_by_rounds,
    ),
    "nanotron": Rule(
        "nanotron: 1F1B m ≥ p−1; it has no interleaved schedule",
        lambda m, p, v, schedule, group: m if schedule == "gpipe" else max(m, p - 1),
        ("1f1b", "gpipe"),
    ),
    "picotron": Rule(
        "picotron: any m; it has no interleaved schedule",
        lambda m, p, v, schedule, group: m,
        ("1f1b", "gpipe"),
    ),
    "deepspeed": Rule(
        "DeepSpeed: any m; it has no interleaved schedule",
        lambda m, p, v, schedule, group: m,
        ("1f1b",),
    ),
    "colossalai": Rule(
        "ColossalAI: 1F1B m ≥ p; interleaved and ZB-V: m a multiple of p",
        lambda m, p, v, schedule, group: max(m, p) if schedule == "1f1b" else -(-m // p) * p,
        ("1f1b", "interleaved-1f1b", "zb-v"),
    ),
    "paddle": Rule(
        "Paddle: 1F1B any m; interleaved: p > 2, m ≥ 2p (m = p is run as looped BFS)",
        lambda m, p, v, schedule, group: m if schedule == "1f1b" else max(m, 2 * p),
        ("1f1b", "interleaved-1f1b"),
        group=lambda p, m: p + m % p,  # what is left over joins the first
        interleaves_from=3,
    ),
    "maxtext": Rule(
        "MaxText: m a multiple of p",
        lambda m, p, v, schedule, group: -(-m // p) * p,
        ("gpipe", "looped-bfs"),
        ("gpipe", "looped-bfs"),
    ),
}
"""By framework; "any" is the rule that is legal in all of them that interleave, but for Paddle's
two rounds."""

CALLED = {
    "torch": "pytorch", "torchtitan": "pytorch", "nemo-automodel": "automodel",
    "megatron-lm": "megatron", "megatron-core": "megatron", "megatron-bridge": "megatron",
    "nemo": "megatron", "verl": "megatron", "ms-swift": "megatron", "gpt-neox": "deepspeed",
    "megatron-deepspeed": "deepspeed",
}  # fmt: skip
"""Frameworks that run on another's pipeline."""


def rule_of(framework: str) -> Rule:
    """A framework's rule; case and punctuation are ignored. Raises InputError for one that is not
    known."""
    names = {bare(name): name for name in (*RULES, *CALLED)}
    if bare(framework) not in names:
        near = names_like(framework, names.values(), bare)
        raise InputError(
            f"no rule is known for {excerpt(framework)!r}; "
            f"{suggestion(framework, names.values() if near else RULES, bare)}"
        )
    name = names[bare(framework)]
    return RULES[CALLED.get(name, name)]


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
    (the framework's default) with a microbatch group (the framework's own where it is 0).

    Raises InputError for a framework that is not known or does not have the schedule.
    """
    rule = rule_of(framework)
    name = schedule or rule.default[virtual > 1]
    if rule.has and name not in (*rule.has, "naive"):
        raise InputError(f"{framework} does not have {name}; it has {listed(rule.has)}")
    if virtual > 1 and ranks < rule.interleaves_from:
        raise InputError(
            f"{framework} interleaves the stages of {rule.interleaves_from} ranks at least, and "
            f"p is {ranks}"
        )
    return rule.least(max(1, microbatches), ranks, virtual, name, group)
