"""Damaged traces are refused by name or answered with what is missing; never in silence."""

import json

import pytest
from tests.shared import shared
from tests.trace.cuda_traces import write_cuda
from tests.trace.damage import HARMLESS, RAW_WAYS, WAYS, copied, fault_in, seeded

from unbubble.cli import invoke
from unbubble.costs import Costs
from unbubble.families import generate
from unbubble.simulate import simulate


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Undamaged folders."""
    place = tmp_path_factory.mktemp("good")
    order = generate("1f1b", 3, 4)
    costs = Costs.uniform(order.placement, forward=90_000, backward=180_000, p2p=7_000)
    (place / "cuda").mkdir()
    return [
        copied(shared("traces/torch_gloo/1F1B"), place / "plain"),
        copied(shared("traces/torch_gloo/ZBVZeroBubble"), place / "named"),
        copied(shared("traces/megatronapp"), place / "megascan"),
        copied(shared("measured/primus_mi300x/pp8"), place / "primus"),
        write_cuda(place / "cuda", simulate(order, costs)),
    ]


@pytest.fixture
def answer(capsys):
    def call(path):
        status = invoke(["trace", str(path), "--json"])
        return status, *capsys.readouterr()

    return call


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_damage_goes_by_in_silence(way, sources, answer, tmp_path):
    first = WAYS.index(way)
    for i in range(first, first + 3):
        source = sources[i % len(sources)]
        good = json.loads(answer(source)[1])
        folder = copied(source, tmp_path / str(i))
        way(folder, seeded(i))
        assert fault_in(*answer(folder), good, harmless=way in HARMLESS) == ""


@pytest.mark.parametrize("way", RAW_WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", ["nsys/mock.sqlite", "bytedance_straggler/trace-ST.parquet"])
def test_binary_files_too(way, name, answer, tmp_path):
    for seed in range(3):
        path = tmp_path / str(seed)
        path.mkdir()
        (path / name.split("/")[1]).write_bytes((shared("traces") / name).read_bytes())
        way(path, seeded(seed))
        assert fault_in(*answer(path)) == ""


def test_traces_of_two_runs_are_told(answer, tmp_path):
    for rank, run in ((0, "GPipe"), (1, "ZBVZeroBubble")):
        name = f"rank{rank}.pt.trace.json.gz"
        (tmp_path / name).write_bytes((shared("traces/torch_gloo") / run / name).read_bytes())
    status, out, _ = answer(tmp_path)
    assert status == 0
    assert json.loads(out)["unknown"]
