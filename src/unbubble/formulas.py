"""The closed forms of the bubble: what holds for equal stages, no communication, no overhead.

Every form names what it divides by, what it assumes and where it comes from; arithmetic is exact.
The field uses one word, bubble, for two quotients, so both are always given:

    bubble fraction  idle / (ranks × makespan)    1F1B: (p−1)/(m+p−1)
    bubble overhead  idle / total work            1F1B: (p−1)/m

F, I, W are the times of one microbatch on a whole rank, B = I + W unless measured, p ranks, v
stages a rank, m microbatches. The simulation is the answer wherever the assumptions do not hold.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

from unbubble.errors import InputError
from unbubble.quantity import number

GPIPE = "GPipe, arXiv 1811.06965"
MEGATRON = "Megatron-LM, arXiv 2104.04473"
ZERO_BUBBLE = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241"
DUALPIPE = "DeepSeek-V3, arXiv 2412.19437, table of DualPipe"
BREADTH_FIRST = "Breadth-First Pipeline Parallelism, arXiv 2211.05953"
CHIMERA = "Chimera, arXiv 2107.06925"
CONTROLLABLE_MEMORY = "Pipeline Parallelism with Controllable Memory, arXiv 2405.15362"


def bubble_fraction(ranks: int, microbatches: int, virtual: int = 1) -> Fraction:
    """Idle / (ranks × makespan) = (p−1)/(vm+p−1) of GPipe and 1F1B (v = 1), interleaved (v > 1)."""
    _counts(ranks=ranks, microbatches=microbatches, virtual_stages=virtual)
    return Fraction(ranks - 1, virtual * microbatches + ranks - 1)


def bubble_overhead(ranks: int, microbatches: int, virtual: int = 1) -> Fraction:
    """Idle / total work = (p−1)/(vm), for the same schedules."""
    _counts(ranks=ranks, microbatches=microbatches, virtual_stages=virtual)
    return Fraction(ranks - 1, virtual * microbatches)


def microbatches_for(
    target: float | Fraction, ranks: int, virtual: int = 1, idle: Fraction | None = None
) -> int:
    """The fewest microbatches whose bubble fraction is at most `target`.

    ⌈(p−1)(1−β)/(βv)⌉ in exact arithmetic (floats give 13 for p=4 and 20 %, where 12 is right; one
    that is given means its shortest text).
    `idle` is the bubble in microbatches of work, that is bubble time / (F + B): (p−1)/v unless it
    is given.
    """
    return max(1, ceil(_microbatches_at(target, ranks, virtual, idle)))


def most_microbatches(
    fraction: float | Fraction, ranks: int, virtual: int = 1, idle: Fraction | None = None
) -> int:
    """The most microbatches whose bubble fraction is still at least `fraction`; 0 if none has that.

    Turns a speed-up into a statement about a run: a schedule without bubbles that is 67/55 times as
    fast as 1F1B means that 1F1B idled 1 − 55/67 or more, so on 8 ranks m was at most 32.
    """
    return floor(_microbatches_at(fraction, ranks, virtual, idle))


def _microbatches_at(
    fraction: float | Fraction, ranks: int, virtual: int, idle: Fraction | None
) -> Fraction:
    _counts(ranks=ranks, virtual_stages=virtual)
    fraction = number(fraction, "a bubble fraction")
    if not 0 < fraction < 1:
        raise InputError(
            f"a bubble fraction of {float(fraction):g} cannot be met with a flush; it is above 0 "
            "and below 1, as in 5% or 0.05"
        )
    bubble = Fraction(ranks - 1, virtual) if idle is None else idle
    return bubble * (1 - fraction) / fraction


class Times(NamedTuple):
    """The times of one microbatch on a whole rank. `overlapped` is that of the pair F&B."""

    forward: Fraction = Fraction(1)
    backward_input: Fraction = Fraction(1)
    backward_weight: Fraction = Fraction(1)
    backward_measured: Fraction | None = None
    overlapped_measured: Fraction | None = None

    @property
    def backward(self) -> Fraction:
        """B: its own time where there is one, else I + W."""
        if self.backward_measured is not None:
            return self.backward_measured
        return self.backward_input + self.backward_weight

    @property
    def overlapped(self) -> Fraction:
        """F&B: its own time where there is one, else F + B."""
        if self.overlapped_measured is not None:
            return self.overlapped_measured
        return self.forward + self.backward


class Form(NamedTuple):
    """A schedule's bubble time on a rank, in words and as a function of p, v and the times.

    `metric` is what the bubble is the idle part of: the makespan or the span. `assumes` says when
    it is exact, and `exact(p, m, times)` whether that is so beyond equal stages and no
    communication. Elsewhere it is an estimate; where `only` is set nothing is published for
    elsewhere, and it is refused. `least(p)` is the smallest m for which it holds; of the schedules
    whose bubble fraction the sizes alone give, it is 1. `splits`: every backward runs as I and W,
    whatever a full one takes.
    """

    formula: str
    metric: str
    source: str
    idle: Callable[[int, int, Times], Fraction]
    assumes: str = "equal stages, no communication"
    exact: Callable[[int, int, Times], bool] = lambda p, m, t: True
    only: bool = False
    least: Callable[[int], int] = lambda p: 1
    splits: bool = False

    def of(self, times: Times) -> Times:
        """The times of what the schedule runs."""
        return times._replace(backward_measured=None) if self.splits else times


_FLUSH = Form(
    "(p−1)(F+B)", "makespan", GPIPE, lambda p, v, t: (p - 1) * (t.forward + t.backward),
)  # fmt: skip
_INTERLEAVED = Form(
    "(p−1)(F+B)/v", "makespan", MEGATRON,
    lambda p, v, t: (p - 1) * (t.forward + t.backward) / v,
    "equal stages, no communication, m ≥ p", lambda p, m, t: m >= p,
)  # fmt: skip
_ZB_V = Form(
    "0", "span", f"{ZERO_BUBBLE}, section 6",
    lambda p, v, t: Fraction(0),
    "equal stages, no communication, m ≥ 2p−1, F = I = W",
    lambda p, m, t: m >= 2 * p - 1 and t.forward == t.backward_input == t.backward_weight,
    only=True, least=lambda p: 2 * p - 1, splits=True,
)  # fmt: skip
_V_HALF = Form(
    "(6⌊(p−1)/2⌋−1)F/2", "makespan", CONTROLLABLE_MEMORY,
    lambda p, v, t: (6 * ((p - 1) // 2) - 1) * t.forward / v,
    "equal stages, no communication, p > 2, m ≥ 2p, F = I = W",
    lambda p, m, t: (
        p > 2 and m >= 2 * p and t.forward == t.backward_input == t.backward_weight
    ),
    only=True, least=lambda p: 2 * p, splits=True,
)  # fmt: skip
_DUALPIPE = Form(
    "(PP/2−1)(F&B+B−3W), PP the number of stages and the times those of a stage", "makespan",
    DUALPIPE,
    lambda p, v, t: (
        (Fraction(p * v, 2) - 1) * (t.overlapped + t.backward - 3 * t.backward_weight) / v
    ),
    "equal stages, no communication, m ≥ 2p, W ≤ F = I, B = I + W, F&B = F + B",
    lambda p, m, t: (
        m >= 2 * p
        and t.backward_weight <= t.forward == t.backward_input
        and t.backward == t.backward_input + t.backward_weight
        and t.overlapped == t.forward + t.backward
    ),
    least=lambda p: 2 * p,
)  # fmt: skip

FORMS: dict[str, Form] = {
    "naive": _FLUSH,
    "gpipe": _FLUSH,
    "1f1b": _FLUSH._replace(source=MEGATRON),
    "eager-1f1b": _FLUSH._replace(source=MEGATRON),
    "interleaved-1f1b": _INTERLEAVED,
    "looped-bfs": _INTERLEAVED._replace(source=BREADTH_FIRST),
    "zb-h1": Form(
        "(p−1)(F+I−W)", "span", ZERO_BUBBLE,
        lambda p, v, t: (p - 1) * (t.forward + t.backward_input - t.backward_weight),
        "equal stages, no communication, m ≥ p, W ≤ F; where W ≤ I it is idle in the makespan too",
        lambda p, m, t: m >= p and t.backward_weight <= t.forward,
        least=lambda p: p, splits=True,
    ),
    "zb-h2": Form(
        "(p−1)(F+I−2W)", "span", ZERO_BUBBLE,
        lambda p, v, t: (p - 1) * (t.forward + t.backward_input - 2 * t.backward_weight),
        "equal stages, no communication, m ≥ 2p−1, W ≤ F or I ≤ F",
        lambda p, m, t: m >= 2 * p - 1 and min(t.backward_weight, t.backward_input) <= t.forward,
        least=lambda p: 2 * p - 1, splits=True,
    ),
    "interleaved-zb": Form(
        "(p−1)(F+I−W)/v", "makespan", f"{ZERO_BUBBLE}, with v stages a rank as in PyTorch",
        lambda p, v, t: (p - 1) * (t.forward + t.backward_input - t.backward_weight) / v,
        "equal stages, no communication, m ≥ p, W ≤ F, I",
        lambda p, m, t: m >= p and t.backward_weight <= min(t.forward, t.backward_input),
        least=lambda p: p, splits=True,
    ),
    "v-half": _V_HALF,
    "v-min": _V_HALF._replace(
        formula="(4p−5)F/2 where p mod 3 = 1, else (4p−7)F/2",
        idle=lambda p, v, t: (4 * p - (5 if p % 3 == 1 else 7)) * t.forward / v,
        assumes="equal stages, no communication, p > 1, m ≥ 2p, F = I = W",
        exact=lambda p, m, t: (
            p > 1 and m >= 2 * p and t.forward == t.backward_input == t.backward_weight
        ),
    ),
    "zb-v": _ZB_V,
    "zbv-zero-bubble": _ZB_V,
    "dualpipe": _DUALPIPE,
    "dualpipe-v": _DUALPIPE,
    "chimera": Form(
        # idle / (m(F+B) + idle) is (p−2)/(2m+p−2) and (p−2)/(3m/2+p−2)
        "(p−2)B", "makespan", CHIMERA,
        lambda p, v, t: (p - 2) * t.backward,
        "equal stages, no communication, p even, m = p, B = F or B = 2F",
        lambda p, m, t: m == p and p % 2 == 0 and t.backward in (t.forward, 2 * t.forward),
        only=True, least=lambda p: p,
    ),
}  # fmt: skip
"""By the name of the schedule."""

BY_SIZES = frozenset(
    name for name, form in FORMS.items() if form.idle in (_FLUSH.idle, _INTERLEAVED.idle)
)
"""Schedules whose bubble fraction is (p−1)/(vm+p−1) whatever the times."""


def bubble_time(
    schedule: str, ranks: int, times: Times, virtual: int = 1, microbatches: int | None = None
) -> Fraction:
    """The idle time of a rank in a step, never below 0, in the unit of the times.

    `microbatches` matter to the forms that are published for some only (Chimera, ZB-V). Raises
    InputError for other numbers and times than those, and for a schedule without a closed form.
    """
    _counts(ranks=ranks, virtual_stages=virtual)
    if schedule not in FORMS:
        raise InputError(
            f"no closed form for the bubble of {schedule!r}; known are {', '.join(FORMS)}"
        )
    form = FORMS[schedule]
    if form.only and not (microbatches and form.exact(ranks, microbatches, times)):
        raise InputError(
            f"{schedule} idles {form.formula} by closed form only with {form.assumes}; "
            "`unbubble simulate` takes any"
        )
    return max(Fraction(0), form.idle(ranks, virtual, times))


def fraction_of_time(idle: Fraction, microbatches: int, times: Times) -> tuple[Fraction, Fraction]:
    """Bubble fraction and bubble overhead of a rank that idles so long in a step."""
    _counts(microbatches=microbatches)
    work = microbatches * (times.forward + times.backward)
    if not work:
        return Fraction(0), Fraction(0)
    return idle / (work + idle), idle / work


def interleaved_span(
    ranks: int, microbatches: int, virtual: int, times: Times, hop: Fraction
) -> Fraction:
    """Zero Bubble's closed form of interleaved 1F1B with transfers of `hop`: its span is
    m·S + (p−1)S/v + (p(2v−1)−2)c, S = F + B. Megatron-LM's order, simulated, pays p transfers more.
    """
    _counts(ranks=ranks, microbatches=microbatches, virtual_stages=virtual)
    whole = times.forward + times.backward
    hops = ranks * (2 * virtual - 1) - 2
    return microbatches * whole + (ranks - 1) * whole / virtual + hops * hop


def peak_in_flight(
    schedule: str,
    ranks: int,
    microbatches: int,
    virtual: int = 1,
    rank: int = 0,
    group: int | None = None,
) -> Fraction:
    """Microbatches of a whole rank whose activations are held at most; for 1F1B on `rank`, for the
    others on the fullest rank. `group` is that of an interleaved schedule (p)."""
    p, m, v = ranks, Fraction(microbatches), virtual
    _counts(ranks=p, microbatches=microbatches, virtual_stages=v)
    held: dict[str, Fraction | int] = {
        "naive": 1,
        "gpipe": m,
        "looped-bfs": m,
        "1f1b": p - rank,
        "eager-1f1b": 2 * p - 1,
        # p + (p−1)/v where the group is p: those that run ahead, and one more
        "interleaved-1f1b": Fraction(interleaved_warmup(p, v, 0, group) + 1, v),
        "zb-h1": p,
        "zb-h2": 2 * p - 1,
        "zb-v": p,
        "zbv-zero-bubble": p,
        "v-half": (p + 2) // 2,
        "v-min": (p + 4) // 3,
        "dualpipe": p + 1,
        "dualpipe-v": p + Fraction(1, 2),
    }
    if schedule not in held:
        raise InputError(
            f"no closed form for the memory of {schedule!r}; known are {', '.join(held)}"
        )
    return min(m, Fraction(held[schedule]))


def interleaved_warmup(ranks: int, virtual: int, rank: int, group: int | None = None) -> int:
    """Forwards of stages that rank r runs before 1F1B begins: 2(p−r−1) + (v−1)·group (p)."""
    return 2 * (ranks - rank - 1) + (virtual - 1) * (ranks if group is None else group)


def deepspeed_steps(stages: int, microbatches: int) -> int:
    """Slots of DeepSpeed's TrainSchedule, each one forward or one backward: 2(m+s−1)."""
    _counts(ranks=stages, microbatches=microbatches)
    return 2 * (microbatches + stages - 1)


def deepspeed_buffers(stages: int, microbatches: int, stage: int) -> int:
    """Activation buffers that DeepSpeed's TrainSchedule keeps: max(2, min(s−stage, m))."""
    _counts(ranks=stages, microbatches=microbatches)
    return max(2, min(stages - stage, microbatches))


def imbalance_factor(loads: Sequence[Fraction]) -> Fraction:
    """γ: the slowest load / the mean load, a load being F + B + exposed communication of one
    microbatch on a rank (`unbubble.simulate.loads`)."""
    return max(loads) * len(loads) / sum(loads) if sum(loads) else Fraction(1)


def utilization_first_order(
    loads: Sequence[Fraction], microbatches: int, virtual: int = 1
) -> Fraction:
    """vm/(vm+p−1)/γ over the loads of the ranks: what is left of the time to first order.

    It takes a step to be (m+p−1) × the slowest load. Too much where one stage is slowest in both
    directions; too little where transfers beside compute hold up the order, or where forward and
    backward have different slowest stages. Exposed communication counts as time in use.
    """
    fraction = bubble_fraction(len(loads), microbatches, virtual)
    return (1 - fraction) / imbalance_factor(loads)


def _counts(**counts: int) -> None:
    letters = {"ranks": "p", "microbatches": "m", "virtual_stages": "v"}
    for name, count in counts.items():
        if count < 1:
            raise InputError(
                f"{letters[name]} ({name.replace('_', ' ')}) is {count}; it is at least 1"
            )
