"""Generating, lowering and proving a schedule, beside PyTorch's lowering in the same run; and what
the posting of receives costs.

    python benchmarks/lowering.py            seconds at p=32 m=128, of the processor
    python benchmarks/lowering.py --posting  step times of each posting, p=8 m=32

The second table simulates every family with even stages, a heavier last stage and stages that vary
by 20 %; a transfer takes 0, 5 or 20 % of a forward. It gives the step relative to the best posting
of the same case, mean and worst, for transfers that wait for nothing but their ends, that share a
stream per pair of ranks or per rank, and that hold their ranks; and how often it deadlocks.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from unbubble.costs import Costs, Edge
from unbubble.errors import InputError
from unbubble.families import families
from unbubble.schedule import Schedule
from unbubble.schedule.check import check
from unbubble.schedule.lowering import RECEIVES, lower
from unbubble.simulate import Deadlock, simulate

REPEATS = 3
CHANNELS = {
    "free": {"channel": "unlimited"},
    "stream per pair": {"channel": "pair"},
    "stream per rank": {"channel": "rank"},
    "holds the ranks": {"overlap": False},
}


def best(make: Callable[[], object]) -> float:
    """The shortest of a few runs, in seconds of the processor."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        make()
        times.append(time.process_time() - start)
    return min(times)


def schedules(ranks: int, microbatches: int) -> Iterator[tuple[str, Schedule]]:
    for name, family in families().items():
        try:
            yield name, family.generate(ranks, microbatches)
        except InputError:
            continue


def theirs(schedule: Schedule) -> float:
    """PyTorch's `_add_send_recv` on the same order."""
    from torch.distributed.pipelining.schedules import _Action, _add_send_recv

    rows = {
        rank: [_Action.from_str(str(action)) for action in schedule.actions(rank)]
        for rank in range(schedule.ranks)
    }
    rank_of = schedule.placement.rank_of
    return best(
        lambda: _add_send_recv(
            {rank: list(row) for rank, row in rows.items()},
            rank_of.__getitem__,
            schedule.num_stages,
        )
    )


def seconds() -> None:
    print(f"{'p=32 m=128':18} actions  generate  lower  check   sum | smart | PyTorch lowers in")
    for name, schedule in schedules(32, 128):
        lowered = lower(schedule)
        assert check(lowered)
        family = families()[name]
        parts = [
            best(lambda family=family: family.generate(32, 128)),
            best(lambda schedule=schedule: lower(schedule)),
            best(lambda lowered=lowered: check(lowered)),
        ]
        smart = best(lambda schedule=schedule: lower(schedule, "smart"))
        beside = ""
        if schedule.placement.copies == 1:
            anchor = theirs(schedule)
            beside = f"{anchor:.3f}  ({anchor / parts[1]:.1f} × ours)"
        print(
            f"{name:18} {len(lowered):7}  {parts[0]:8.3f}  {parts[1]:5.3f}  {parts[2]:5.3f} "
            f"{sum(parts):5.3f} | {smart:5.3f} | {beside}"
        )


def cases() -> Iterator[tuple[Schedule, Costs]]:
    rng = random.Random(0)
    for _, schedule in schedules(8, 32):
        stages = schedule.num_stages
        for forward in (
            [100] * stages,
            [100] * (stages - 1) + [150],
            [rng.randint(80, 120) for _ in range(stages)],
        ):
            for transfer in (0, 5, 20):
                costs = Costs.uniform(
                    schedule.placement,
                    forward=forward,
                    backward_input=forward,
                    backward_weight=forward,
                    backward=[2 * f for f in forward],
                )
                edge = Edge(transfer * costs.ticks_per_unit)
                yield schedule, replace(costs, edge=edge)


def posting() -> None:
    print(f"{'':16}" + "".join(f"{receive:>22}" for receive in RECEIVES))
    for name, channel in CHANNELS.items():
        steps: dict[str, list[float]] = {receive: [] for receive in RECEIVES}
        stuck = dict.fromkeys(RECEIVES, 0)
        for schedule, costs in cases():
            made: dict[str, int] = {}
            for receive in RECEIVES:
                try:
                    timeline = simulate(lower(schedule, receive), replace(costs, **channel))
                    made[receive] = timeline.makespan
                except Deadlock:
                    stuck[receive] += 1
            for receive, makespan in made.items():
                steps[receive].append(makespan / min(made.values()))
        cells = []
        for receive, relative in steps.items():
            cell = f"{sum(relative) / len(relative):.3f}, {max(relative):.2f}" if relative else ""
            cells.append(f"{cell} {stuck[receive] or '':>3}")
        print(f"{name:16}" + "".join(f"{cell:>22}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--posting", action="store_true")
    if parser.parse_args().posting:
        posting()
    else:
        seconds()


if __name__ == "__main__":
    main()
