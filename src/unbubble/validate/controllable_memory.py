"""Pipeline Parallelism with Controllable Memory, arXiv 2405.15362: V-Min and V-Half.

F = I = W = 1 for each of the two stages of a rank, m = 4p, no communication; the authors' released
scheduler gives the spans.
"""

from collections.abc import Iterator
from fractions import Fraction

from unbubble.simulate.memory import activations
from unbubble.validate.figure import Figure, fitted, in_unit

SOURCE = "Pipeline Parallelism with Controllable Memory, arXiv 2405.15362, its released scheduler"

ROWS = (
    # p, schedule, span, bubble, microbatches held
    (3, "v-min", "77", "0.0649", "2"),
    (3, "v-half", "77", "0.0649", "2"),
    (4, "v-min", "107", "0.1028", "2"),
    (4, "v-half", "101", "0.0495", "3"),
    (8, "v-min", "219", "0.1233", "4"),
    (8, "v-half", "209", "0.0813", "5"),
)


def figures() -> Iterator[Figure]:
    for p, schedule, span, bubble, held in ROWS:
        _, timeline, _ = fitted(schedule, p, 4 * p, forward=2, backward_input=2, backward_weight=2)
        peak = max(c.peak for c in activations(timeline, whole_until_weight=True))
        found: tuple[tuple[str, str, Fraction, bool], ...] = (
            ("span", span, in_unit(timeline, timeline.span), True),
            ("bubble", bubble, timeline.bubble_fraction_span, True),
            ("held", held, peak, False),
        )
        for what, theirs, ours, at_most in found:
            yield Figure(
                case=f"p={p} m={4 * p}",
                what=f"{schedule} {what}",
                theirs=theirs,
                ours=ours,
                source=SOURCE,
                at_most=at_most,
                fraction=what == "bubble",
            )
