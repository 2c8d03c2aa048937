"""DualPipe's published comparison: bubble and memory of four schedules, in closed forms.

B is the full backward, F&B the overlapped pair, PP the number of pipeline stages, and the times are
those of a stage. The forms are evaluated for some times and the schedules simulated with them. As
in the README, activations and parameters are counted in stages, those of one device: DualPipe-V has
half of the devices, each with two stages, so that its PP + 1 are p + ½ microbatches of a rank.
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
    """Activations and parameters of the fullest device, in stages."""
    forms = (
        ("1f1b", stages, 1, stages, 1),
        ("zb-1p", stages, 1, stages, 1),
        ("dualpipe", stages, 1, stages + 1, 2),
        ("dualpipe-v", stages // 2, 2, stages + 1, 2),
    )
    for schedule, p, v, held, parameters in forms:
        order, timeline, _ = fitted(schedule, p, 4 * stages, v)
        peak = v * max(c.peak for c in activations(timeline))
        placed = Fraction(len(order.placement.rank_of), p)
        for what, theirs, ours in (("held", held, peak), ("parameters", parameters, placed)):
            yield Figure(
                case=f"PP={stages}, in stages",
                what=f"{schedule} {what}",
                theirs=str(theirs),
                ours=ours,
                source=SOURCE,
                fraction=False,
            )
