"""Zero Bubble Pipeline Parallelism, arXiv 2401.10241: tables 5, 8 and 9.

Bubbles are by span, 1 − m(F+I+W)/span, in a model where a transfer between two ranks is nothing
but latency. Table 5's times are those of table 9; table 8 has two stages a rank, its times are
those of one.

Interleaved 1F1B is given by a closed form there. The simulation of Megatron-LM's order pays p
transfers more, which is what its figure may differ by.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from unbubble.formulas import Times, interleaved_span
from unbubble.simulate.memory import activations
from unbubble.validate.figure import Figure, fitted

SOURCE = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241"


class Row(NamedTuple):
    """Times of one stage; `v` stages a rank for 1f1b-i, `stages` a rank for the times."""

    case: str
    ranks: int
    microbatches: int
    forward: str
    backward_input: str
    backward_weight: str
    p2p: str
    v: int
    stages: int
    bubbles: dict[str, str]


def _row(case: str, times: str, v: int, stages: int, columns: str, bubbles: str) -> Row:
    model, p, m = case.split()
    f, i, w, c = times.split()
    printed = dict(zip(columns.split(), bubbles.split(), strict=True))
    return Row(f"{model} p={p} m={m}", int(p), int(m), f, i, w, c, v, stages, printed)


_FIVE = "1f1b 1f1b-i zb-h1 zb-h2 zb-1p zb-2p"
TABLE_5 = tuple(
    _row(case, times, v, 1, _FIVE, bubbles)
    for case, times, v, bubbles in (
        # model p m, F I W c in ms
        ("6.2B 8 24", "29.718 29.444 19.927 0.527", 4, ".2347 .0808 .1323 .0698 .1323 .0029"),
        ("6.2B 8 32", "29.802 29.428 19.530 0.577", 4, ".1898 .0628 .1045 .0559 .1045 .0022"),
        ("6.2B 8 64", "29.935 29.621 19.388 0.535", 4, ".1091 .0320 .0554 .0294 .0554 .0010"),
        ("14.6B 16 48", "11.347 11.248 8.132 0.377", 3, ".2552 .1104 .1397 .0672 .1397 .0066"),
        ("14.6B 16 64", "11.307 11.254 8.101 0.379", 3, ".2082 .0852 .1088 .0516 .1088 .0054"),
        ("14.6B 16 128", "11.325 11.308 8.109 0.378", 3, ".1251 .0445 .0576 .0266 .0576 .0028"),
    )
)
_EIGHT = "1f1b 1f1b-i zb-h1 zb-h2 zb-v"
TABLE_8 = tuple(
    _row(case, times, 2, 2, _EIGHT, bubbles)
    for case, times, bubbles in (
        # µs, of one of the two stages of a rank
        ("6.2B 16 48", "14407 14380 9676 1610", ".2668 .1499 .1536 .0823 .0697"),
        ("6.2B 16 64", "14412 14393 9688 1621", ".2206 .1169 .1198 .0630 .0533"),
        ("6.2B 16 128", "14316 14306 9639 1619", ".1390 .0621 .0637 .0325 .0274"),
    )
)
MEMORY = {"zb-1p": 1, "zb-2p": 2, "zb-v": 1}
"""At most so many times p microbatches are held on a rank."""


def figures() -> Iterator[Figure]:
    for table, rows in (("tables 5 and 9", TABLE_5), ("table 8", TABLE_8)):
        for row in rows:
            for schedule, printed in row.bubbles.items():
                source = f"{SOURCE}, {table}"
                if schedule == "1f1b-i":
                    yield from _interleaved(row, printed, source)
                else:
                    yield from _simulated(row, schedule, printed, source)


def _times(row: Row) -> dict[str, Fraction]:
    """Of a whole rank."""
    return {
        "forward": row.stages * Fraction(row.forward),
        "backward_input": row.stages * Fraction(row.backward_input),
        "backward_weight": row.stages * Fraction(row.backward_weight),
        "p2p": Fraction(row.p2p),
    }


def _simulated(row: Row, schedule: str, printed: str, source: str) -> Iterator[Figure]:
    p, m = row.ranks, row.microbatches
    _, timeline, costs = fitted(schedule, p, m, None, **_times(row))
    yield Figure(
        case=row.case,
        what=f"{schedule} bubble",
        theirs=f"0{printed}",
        ours=timeline.bubble_fraction_span,
        source=source,
        at_most=schedule in ("zb-1p", "zb-2p"),
    )
    if schedule in MEMORY:
        yield Figure(
            case=row.case,
            what=f"{schedule} held",
            theirs=str(MEMORY[schedule] * p),
            ours=max(curve.peak for curve in activations(timeline, costs)),
            source=source,
            at_most=True,
            fraction=False,
        )


def _interleaved(row: Row, printed: str, source: str) -> Iterator[Figure]:
    p, m, times = row.ranks, row.microbatches, _times(row)
    hop = times["p2p"]
    of_rank = Times(times["forward"], times["backward_input"], times["backward_weight"])
    span = interleaved_span(p, m, row.v, of_rank, hop)
    work = m * (of_rank.forward + of_rank.backward)
    closed = 1 - work / span
    yield Figure(
        case=row.case,
        what="1f1b-i bubble by closed form",
        theirs=f"0{printed}",
        ours=closed,
        source=source,
    )
    _, timeline, _ = fitted("interleaved-1f1b", p, m, row.v, **times)
    yield Figure(
        case=row.case,
        what="1f1b-i bubble",
        theirs=f"0{printed}",
        ours=timeline.bubble_fraction_span,
        source=f"{source}; p transfers fewer",
        allowed=1 - work / (span + p * hop) - closed,
    )
