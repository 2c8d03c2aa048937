"""Looped BFS, breadth first: stages placed in rounds, every stage runs all microbatches at once.

p=4 m=4 v=2, F=B=1            bubble (p−1)/(vm+p−1) = 3/11; F, B those of a stage
rank 0  0 1 2 3 0 1 2 3 . . . . . . d c b a d c b a
rank 1  . 0 1 2 3 0 1 2 3 . . . . d c b a d c b a .
rank 2  . . 0 1 2 3 0 1 2 3 . . d c b a d c b a . .
rank 3  . . . 0 1 2 3 0 1 2 3 d c b a d c b a . . .

As short as interleaved 1F1B and as hungry as GPipe, but each stage's weights are needed in one
piece of the step, which is what fully sharded data parallelism wants. The backwards of a stage run
from the last microbatch to the first, as in PyTorch.
"""

from unbubble.action import Kind
from unbubble.costs import Costs
from unbubble.families.family import Family, Option
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import looping
from unbubble.schedule.weave import array_of, run


def order(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """Stage by stage all forwards; then from the last stage to the first all backwards."""
    rows = []
    for rank in range(ranks):
        stages = range(rank, ranks * virtual, ranks)
        rows.append(
            array_of(
                *(run(Kind.F, stage, 0, microbatches) for stage in stages),
                *(run(Kind.B, stage, 0, microbatches)[::-1] for stage in stages[::-1]),
            )
        )
    return Schedule.of_codes(rows, looping(ranks, virtual))


FAMILY = Family(
    name="looped-bfs",
    aliases=("ScheduleLoopedBFS", "breadth-first"),
    summary="v stages a rank in rounds, each running all its microbatches in one piece",
    source="Breadth-First Pipeline Parallelism, arXiv 2211.05953; torch.distributed.pipelining",
    bubble="(p−1)/(vm+p−1) where m ≥ p",
    memory="m microbatches on every rank",
    order=order,
    virtual=(2, None),
    placement=looping,
)
