"""Classes: how the five classes of a step stand in a table for people."""

import re
from collections.abc import Mapping, Sequence

HEADS = {
    "compute": "compute",
    "bubble": "bubble",
    "imbalance_static": "imbalance",
    "imbalance_jitter": "jitter",
    "communication": "exposed",
    "overhead": "overhead",
}
"""By the name of a class (`attribution.CLASSES`)."""

_BELOW_ZERO = {
    "imbalance": "imbalance below 0: the rank waits less than among equal ranks, being slow itself",
    "jitter": "jitter below 0: the actions as they were fit together better than their means",
}
_NEGATIVE = re.compile(r"-[0-9.]*[1-9]")


def why_below_zero(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """The reason, a line a class, for what is below 0 in a table of classes by their heads."""
    return [
        reason
        for head, reason in _BELOW_ZERO.items()
        if any(_NEGATIVE.match(row.get(head, "")) for row in rows)
    ]
