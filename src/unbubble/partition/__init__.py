"""Layers to stages, exactly: the split whose busiest rank is as little busy as can be.

A rank's load is F + B of one microbatch over all of its stages, times its speed factor. With one
stage a rank the optimum is found by bisection over the load, exact in integers. With several, a
descent finds a split and an exhaustive search over the ranks proves that no better one exists, or
gives up within a budget and leaves a lower bound; of the splits within 1 % of the best the one
with the most even stages is taken, as a rank's stages run one at a time. Every stage holds at least
one layer.

    5 equal layers over 4 ranks: [2, 1, 1, 1], never [2, 2, 1, 0]

Among equals the loads that differ least win, then the larger ones in front: under 1F1B a slow
first stage costs less than a slow last one, as its fill is paid before the steady state.
"""

from unbubble.partition.optimum import Partition, fastest, partition, rank_loads
from unbubble.partition.split import Split, even, improve, stage_costs

__all__ = [
    "Partition",
    "Split",
    "even",
    "fastest",
    "improve",
    "partition",
    "rank_loads",
    "stage_costs",
]
