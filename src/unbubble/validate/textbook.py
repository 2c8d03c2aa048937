"""The textbook's figures of GPipe, 1F1B and the number of microbatches."""

from collections.abc import Iterator
from fractions import Fraction

from unbubble.formulas import microbatches_for
from unbubble.simulate.memory import activations
from unbubble.validate.figure import Figure, fitted, in_unit

SIMULATED = "GPipe, arXiv 1811.06965; Megatron-LM, arXiv 2104.04473: (p−1)/(m+p−1)"
COUNTED = "the same bubble, solved for m"

STEPS = (
    # schedule, p, m, F, B, makespan, bubble fraction, microbatches held on each rank
    ("gpipe", 4, 8, 1, 2, "33", "0.273", "8 8 8 8"),
    ("1f1b", 4, 4, 1, 2, "21", "0.429", "4 3 2 1"),
    ("1f1b", 4, 8, 1, 2, "33", "0.273", "4 3 2 1"),
    ("1f1b", 4, 16, 1, 2, "57", "0.158", "4 3 2 1"),
    ("1f1b", 4, 32, 1, 2, "105", "0.086", "4 3 2 1"),
    ("1f1b", 8, 32, 1, 1, "78", "0.179", "8 7 6 5 4 3 2 1"),
)
TARGETS = (
    # p, percent, m
    (4, 20, "12"),
    (8, 20, "28"),
    (8, 10, "63"),
    (8, 5, "133"),
    (16, 20, "60"),
    (16, 10, "135"),
    (16, 5, "285"),
)


def figures() -> Iterator[Figure]:
    for schedule, p, m, f, b, makespan, bubble, held in STEPS:
        _, timeline, _ = fitted(schedule, p, m, forward=f, backward=b)
        peaks = [curve.peak for curve in activations(timeline)]
        case = f"{schedule} p={p} m={m} F={f} B={b}"
        found: list[tuple[str, str, Fraction]] = [
            ("makespan", makespan, in_unit(timeline, timeline.makespan)),
            ("bubble", bubble, timeline.bubble_fraction),
        ]
        found += [
            (f"held on rank {rank}", theirs, ours)
            for rank, (theirs, ours) in enumerate(zip(held.split(), peaks, strict=True))
        ]
        for what, theirs, ours in found:
            yield Figure(
                case=case,
                what=what,
                theirs=theirs,
                ours=ours,
                source=SIMULATED,
                fraction=what == "bubble",
            )
    for p, percent, needed in TARGETS:
        yield Figure(
            case=f"p={p}, a bubble of {percent}%",
            what="microbatches",
            theirs=needed,
            ours=Fraction(microbatches_for(Fraction(percent, 100), p)),
            source=COUNTED,
            fraction=False,
        )
