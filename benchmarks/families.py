"""How long the schedule families take to make their orders, beside PyTorch's in the same run.

    python benchmarks/families.py            p=256 m=8192; and p=32 m=128 beside PyTorch

PyTorch's generators make each order and lower it to sends and receives in one call; only the time
of its `_calculate_single_rank_operations` (or `_get_pipeline_order`) is counted.
"""

import time
from collections.abc import Callable
from unittest import mock

from unbubble.errors import InputError
from unbubble.families import Family, families
from unbubble.schedule import Schedule

CLASSES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved-1f1b": "Interleaved1F1B",
    "looped-bfs": "LoopedBFS",
    "interleaved-zb": "InterleavedZeroBubble",
    "dualpipe-v": "DualPipeV",
}
REPEATS = 3


def best(make: Callable[[], object]) -> float:
    """The shortest of a few runs, in seconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        make()
        times.append(time.perf_counter() - start)
    return min(times)


def theirs(name: str, ranks: int, microbatches: int, virtual: int) -> float:
    """Seconds that PyTorch's class takes for the orders of all ranks."""
    from torch.distributed.pipelining import schedules
    from torch.distributed.pipelining.stage import PipelineStage

    stage = mock.create_autospec(PipelineStage, instance=True)
    stage.group_rank, stage.group_size, stage.submod = 0, ranks, None
    stage.num_stages = ranks * virtual
    cls = schedules.get_schedule_class(name)
    if issubclass(cls, schedules.PipelineScheduleSingle):
        made = cls(stage, microbatches)
        return best(made._get_pipeline_order)
    with mock.patch.object(cls, "_prepare_schedule_with_comms"):
        made = cls([stage] * virtual, microbatches)
    return best(lambda: [made._calculate_single_rank_operations(r) for r in range(ranks)])


def ours(family: Family, ranks: int, microbatches: int) -> tuple[float, Schedule] | None:
    try:
        schedule = family.generate(ranks, microbatches)
    except InputError:
        return None
    return best(lambda: family.generate(ranks, microbatches)), schedule


def main() -> None:
    print("p=256 m=8192")
    for name, family in families().items():
        if (result := ours(family, 256, 8192)) is not None:
            seconds, schedule = result
            each = seconds / len(schedule) * 1e9
            print(f"  {name:18} {len(schedule):>10} actions {seconds:6.2f} s {each:5.0f} ns each")
    print("p=32 m=128, ours | PyTorch's | ratio")
    for name, cls in CLASSES.items():
        family = families()[name]
        result = ours(family, 32, 128)
        assert result is not None
        other = theirs(cls, 32, 128, family.virtual[0] or 1)
        print(
            f"  {name:18} {result[0] * 1e3:7.1f} | {other * 1e3:7.1f} ms | {other / result[0]:.0f}"
        )


if __name__ == "__main__":
    main()
