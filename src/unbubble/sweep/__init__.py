"""Sweep: more and more microbatches (and stages a rank), and where that stops paying.

The prediction is the simulation's; beside it may stand what was measured. If throughput does not
follow the prediction, the bubble is not what limits the run: doubling m from 8 to 16 on 8 ranks
should give × 1.30, and a run that gives × 0.99 is bound by something that every microbatch costs.
Which it is, the five classes of measured steps say.
"""

from unbubble.sweep.rows import PAYS, Row, Taken, doublings, over_ranks, predicted_row, sweep
from unbubble.sweep.verdict import Verdict, verdict

__all__ = [
    "PAYS",
    "Row",
    "Taken",
    "Verdict",
    "doublings",
    "over_ranks",
    "predicted_row",
    "sweep",
    "verdict",
]
