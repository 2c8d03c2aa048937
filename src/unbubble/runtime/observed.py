"""Observed costs: what the actions of measured steps cost, to predict other steps of the stages."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median

from unbubble.action import JOINED, KIND_MASK, STAGE_MASK, STAGE_SHIFT, Kind, receive_of
from unbubble.costs import Costs, Duration, Edge, StageCosts
from unbubble.errors import InputError
from unbubble.simulate import Timeline

_SENDS = (Kind.SEND_F, Kind.SEND_B)
_RECEIVES = (Kind.RECV_F, Kind.RECV_B)


def observed_costs(steps: Sequence[Timeline]) -> Costs:
    """Costs by stage from measured steps of one placement.

    Times of compute and of posting transfers are means, since a step adds them up; the latency is
    the median of the transfers' times, a late delivery now and then being none of the edge's. A
    kind that no step holds is left out, so that a schedule in need of it is refused.
    """
    samples: dict[tuple[int, int], list[int]] = defaultdict(list)
    arrivals: list[int] = []
    for step in steps:
        ended = {}
        for codes, starts, ends in zip(step.schedule.codes, step.starts, step.ends, strict=True):
            joined = False
            for code, start, end in zip(codes, starts, ends, strict=True):
                ended[code & ~JOINED] = end
                if not (joined or code & JOINED):
                    samples[code & KIND_MASK, code >> STAGE_SHIFT & STAGE_MASK].append(end - start)
                joined = bool(code & JOINED)
        for transfer in step.transfers:
            posts = (transfer.action, receive_of(transfer.action))
            ready = max(ended[code] for post in posts for code in post.codes)
            arrivals.append(transfer.end - ready)
    if not samples:
        raise InputError("there are no measured steps to take costs from")
    first = steps[0]

    def duration(kind: Kind, stage: int) -> Duration | None:
        values = samples.get((kind, stage))
        return Duration(round(fmean(values))) if values else None

    def host(kinds: tuple[Kind, ...]) -> int:
        values = [v for (kind, _), found in samples.items() if kind in kinds for v in found]
        return round(fmean(values)) if values else 0

    return Costs(
        stages=tuple(
            StageCosts(
                name=f"stage {stage}",
                forward=duration(Kind.F, stage) or Duration(),
                backward_input=duration(Kind.I, stage),
                backward_weight=duration(Kind.W, stage),
                backward=duration(Kind.B, stage),
            )
            for stage in range(first.schedule.num_stages)
        ),
        unit=first.unit,
        ticks_per_unit=first.ticks_per_unit,
        send_host=host(_SENDS),
        recv_host=host(_RECEIVES),
        edge=Edge(latency=max(0, round(median(arrivals)))) if arrivals else Edge(),
    )
