"""DualPipe's published comparison: bubble and memory of four schedules, in closed forms.

B is the full backward, F&B the overlapped pair, PP the number of pipeline stages, and the times are
those of a stage. The forms are evaluated for some times and the schedules simulated with them. The
paper counts activations in stages: PP + 1 of them are p + 1 microbatches of DualPipe's PP ranks and
p + ½ of DualPipe-V's p = PP/2.
"""

from collections.abc import Iterator
from fractions import Fraction

from unbubble.simulate.memory import activations
from unbubble.validate.figure import Figure, fitted, in_unit

SOURCE = "DeepSeek's DualPipe, the comparison of its README; DeepSeek-V3, arXiv 2412.19437"

STAGES = (4, 8, 16)
TIMES = (
    # F, I, W of a stage, F&B; the forms hold where W ≤ I = F
    (1, 1, 1, 3),
    (4, 4, 3, 10),
)


def figures() -> Iterator[Figure]:
    for stages in STAGES:
        for f, i, w, both in TIMES:
            b = i + w
            short = (stages // 2 - 1) * (both + b - 3 * w)
            bubbles = (
                ("1f1b", stages, 1, (stages - 1) * (f + b)),
                ("zb-1p", stages, 1, (stages - 1) * (f + b - 2 * w)),
                ("dualpipe", stages, 1, short),
                ("dualpipe-v", stages // 2, 2, short),
            )
            for schedule, p, v, idle in bubbles:
                _, timeline, _ = fitted(
                    schedule,
                    p,
                    4 * stages,
                    forward=f * v,
                    backward_input=i * v,
                    backward_weight=w * v,
                    overlapped=both * v,
                )
                yield Figure(
                    case=f"PP={stages} F,I,W,F&B={f},{i},{w},{both}",
                    what=f"{schedule} bubble time",
                    theirs=str(idle),
                    ours=in_unit(timeline, max(timeline.idle)),
                    source=SOURCE,
                    fraction=False,
                )
        yield from _held(stages)


def _held(stages: int) -> Iterator[Figure]:
    """Microbatches of a rank, and copies of the parameters."""
    forms = (
        ("1f1b", stages, 1, str(stages), "1"),
        ("zb-1p", stages, 1, str(stages), "1"),
        ("dualpipe", stages, 1, str(stages + 1), "2"),
        ("dualpipe-v", stages // 2, 2, f"{stages // 2}.5", "1"),
    )
    for schedule, p, v, held, copies in forms:
        order, timeline, _ = fitted(schedule, p, 4 * stages, v)
        peak = max(c.peak for c in activations(timeline))
        parameters = Fraction(len(order.placement.rank_of), order.num_stages)
        for what, theirs, ours in (("held", held, peak), ("parameters", copies, parameters)):
            yield Figure(
                case=f"PP={stages}",
                what=f"{schedule} {what}",
                theirs=theirs,
                ours=ours,
                source=SOURCE,
                fraction=False,
            )
