"""PyTorch's schedule runtime loads our files, in both of its formats, and its dry run ends."""

from unittest import mock

import pytest

from unbubble.errors import InputError
from unbubble.families import families
from unbubble.schedule import format_csv
from unbubble.schedule.lowering import RECEIVES, lower
from unbubble.schedule.whole_stage import for_pytorch

SIZES = [(1, 1, None), (2, 4, None), (3, 6, None), (4, 8, None), (4, 16, 3), (8, 16, None)]


def _schedules(family):
    for ranks, microbatches, virtual in SIZES:
        try:
            yield family.generate(ranks, microbatches, virtual)
        except InputError:
            continue


def _runtime(schedule):
    """PyTorch's runtime as its own visualizer makes it, without processes."""
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
    from torch.distributed.pipelining.stage import PipelineStage

    stage = mock.create_autospec(PipelineStage, instance=True)
    stage.group_rank, stage.group_size, stage.submod = 0, schedule.ranks, None
    stage.num_stages = schedule.num_stages
    return _PipelineScheduleRuntime([stage], schedule.microbatches)


def _rows(order):
    return [[str(action) for action in order[rank]] for rank in sorted(order)]


@pytest.mark.parametrize("name", families())
def test_pytorch_loads_both_formats(name, tmp_path):
    from torch.distributed.pipelining.schedules import _simulate_comms_compute

    loaded = 0
    for schedule in _schedules(families()[name]):
        path = tmp_path / "order.csv"
        if schedule.placement.copies > 1 or not schedule.flush:
            with pytest.raises(InputError, match=r"copies|flush"):
                format_csv(schedule)
            continue
        path.write_text(format_csv(schedule))
        runtime = _runtime(schedule)
        runtime._load_csv(str(path), format="compute_only")
        theirs = _rows(runtime.pipeline_order_with_comms)
        for receive in RECEIVES:
            ours = for_pytorch(schedule, receive)
            path.write_text(format_csv(ours))
            runtime = _runtime(schedule)
            runtime._load_csv(str(path), format="compute_comms")
            rows = _rows(runtime.pipeline_order_with_comms)
            assert rows == [[str(a) for a in ours.actions(rank)] for rank in range(ours.ranks)]
            assert (rows == theirs) or receive != "early"

            # its dry run knows neither UNSHARD nor the pair of a forward and a backward
            path.write_text(format_csv(lower(schedule, receive)))
            if "OVERLAP" in path.read_text():
                continue
            runtime._load_csv(str(path), format="compute_comms")
            rank_of = schedule.placement.rank_of
            ran = _simulate_comms_compute(
                runtime.pipeline_order_with_comms, rank_of.__getitem__, schedule.num_stages
            )
            assert sum(a is not None for row in ran.values() for a in row) == len(
                lower(schedule, receive)
            )
        loaded += 1
    family = families()[name]
    assert loaded or family.name in ("chimera", "dualpipe", "pipedream")
