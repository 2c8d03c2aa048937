"""Fixed orders under one exact latency model, by span: F, I, W, c of a whole rank.

Held: microbatches of the fullest rank at p = 8, m = 32, an activation whole to the end of W.
"""

from collections.abc import Iterator
from fractions import Fraction

from unbubble.simulate.memory import activations
from unbubble.validate.figure import Figure, fitted

SOURCE = "fixed orders under one exact latency model"

ORDERS = (
    ("1f1b", 1),
    ("interleaved-1f1b", 2),
    ("interleaved-1f1b", 4),
    ("looped-bfs", 2),
    ("interleaved-zb", 2),
    ("interleaved-zb", 4),
    ("zbv-zero-bubble", 2),
)
ROWS = (
    # p, m, F, I, W, c, the bubble of each order
    (8, 32, "1 1 1 0", ".1795 .0986 .0519 .0986 .0352 .0179 .0000"),
    (8, 32, "10 10 8 0.4", ".1994 .1093 .0761 .1036 .0592 .0446 .0324"),
    (8, 32, "10 11 9 2", ".2649 .1467 .1553 .1217 .1061 .2197 .0892"),
    (16, 64, "10 10 8 0.4", ".2110 .1158 .0798 .1102 .0630 .0469 .0351"),
)
HELD = (
    ("1f1b", 1, "8"),
    ("interleaved-1f1b", 2, "11.5"),
    ("interleaved-1f1b", 4, "9.75"),
    ("looped-bfs", 2, "32"),
    ("interleaved-zb", 2, "8"),
    ("interleaved-zb", 4, "8"),
    ("zbv-zero-bubble", 2, "8"),
    ("dualpipe-v", 2, "8.5"),
)


def figures() -> Iterator[Figure]:
    for p, m, times, bubbles in ROWS:
        f, i, w, c = map(Fraction, times.split())
        for (schedule, v), printed in zip(ORDERS, bubbles.split(), strict=True):
            _, timeline, _ = fitted(
                schedule, p, m, v, forward=f, backward_input=i, backward_weight=w, p2p=c
            )
            yield Figure(
                case=f"p={p} m={m} F,I,W,c={times.replace(' ', ',')}",
                what=f"{schedule} v={v} bubble",
                theirs=f"0{printed}",
                ours=timeline.bubble_fraction_span,
                source=SOURCE,
            )
    for schedule, v, held in HELD:
        _, timeline, _ = fitted(schedule, 8, 32, v)
        yield Figure(
            case="p=8 m=32",
            what=f"{schedule} v={v} held",
            theirs=held,
            ours=max(c.peak for c in activations(timeline, whole_until_weight=True)),
            source=SOURCE,
            fraction=False,
        )
