"""Calls: collectives that ranks of several pipelines make together.

All members leave a collective together, when the last one has come and the data have gone round.
So the member that is in it for the shortest is the last, and what the others take longer is their
wait for it, whatever the clocks of their machines say.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from unbubble.trace.observed import About, Doubt, Observed, Seen

ABSENT = Doubt(
    About.TAIL,
    "whether its collectives waited for ranks of which there is no trace; that would be in their "
    "time",
)


def without_late_members(ranks: Sequence[Observed]) -> list[Observed]:
    """One step of a job's ranks, the calls at whose ends last from when their last member came."""
    calls: dict[str, list[Seen]] = defaultdict(list)
    for one in ranks:
        for seen in one.tail:
            if seen.members:
                calls[seen.group].append(seen)
    if not calls:
        return list(ranks)
    shortest = {group: min(seen.end - seen.start for seen in own) for group, own in calls.items()}
    return [
        replace(
            one,
            tail=tuple(
                seen._replace(start=seen.end - shortest.get(seen.group, seen.end - seen.start))
                for seen in one.tail
            ),
            unknown=(*one.unknown, ABSENT)
            if any(len(calls[seen.group]) < seen.members for seen in one.tail if seen.members)
            else one.unknown,
        )
        for one in ranks
    ]
