"""A call of every command with answers of every kind, for what all of them promise."""

from dataclasses import replace

from tests.records import lines, write

from unbubble.costs import Costs, Duration, StageCosts
from unbubble.families import generate
from unbubble.plan import Plan, dump_plan
from unbubble.simulate import simulate
from unbubble.trace.recording import dump_recording

TINY = "unbubble.runtime.decoder:tiny"

EXAMPLES = {
    "bubble": [
        "-p 8 -m 64",
        "-p 8 -v 4 --global-batch 512 --dp 4",
        "-p 4 -m 6 -v 2 --framework megatron --target 5% --speedup 67/55 --schedule interleaved",
        "-p 4 -m 2 --schedule zb-h1",
        "-p 4 -m 8 --schedule dualpipe-v",
    ],
    "simulate": [
        "--schedule 1f1b -p 4 -m 8 --draw",
        "--schedule dualpipe -p 4 -m 10 --what-if --jitter 5% --draws 20",
        "--schedule pipedream -p 4 -m 8",
        "--schedule interleaved-1f1b:rule=megatron -p 4 -m 8 -v 2 --costs layers.json",
        "--plan plan.json",
    ],
    "compare": [
        "-p 4 -m 8",
        "-p 4 -m 6 --schedules gpipe,1f1b,interleaved-1f1b,dualpipe,pipedream,chimera,zb-v",
    ],
    "sweep": [
        "-p 4 --most 16",
        "-p 2 --schedule interleaved-1f1b -v 1,2 --most 8",
        "-p 8 --throughput 8:8077,16:7987 --control 8:9000,16:9100",
        "-p 4,8 -m 8 --devices 8 --throughput 8:8077,4:12150",
        "--plan plan.json --most 8 --memory 1GiB",
    ],
    "partition": [
        "--layers 61 -p 4",
        "--costs layers.json -p 2 -v 3 --objective makespan -o made.json",
        "--layers 512 -p 64",
    ],
    "schedule list": [""],
    "schedule show": ["1f1b -p 4 -m 8", "order.csv", "zb-v -p 16 -m 64"],
    "schedule export": ["zb-v -p 4 -m 8", "1f1b -p 4 -m 8 --with-comms -o made.csv"],
    "schedule check": ["order.csv", "stuck.csv", "faulty.csv"],
    "profile": [f"{TINY} --processes 2 --rounds 2 --warmup 1 -o made.json"],
    "run": ["plan.json --steps 2 --warmup 1"],
    "trace": ["step.json", "step.json --plan plan.json --what-if --max-bubble 5%", "steps"],
    "watch": ["--once --price 2.5 steps", "--alerts"],
    "validate": ["", "textbook", "zero-bubble", "controllable-memory", "dualpipe", "fixed-orders"],
    "demo": [],  # test_demo calls it
}
"""Command → arguments, in a folder with the files of `lay_out`."""

VERDICTS = {"schedule check stuck.csv", "schedule check faulty.csv",
            "trace step.json --plan plan.json --what-if --max-bubble 5%"}  # fmt: skip
"""The calls that end with status 3."""


def lay_out(folder):
    """Costs of layers, a plan of the tiny decoder, a measured step of it, live records, orders."""
    layer = '{"name": "block.%d", "forward": %d, "backward_input": 2, "backward_weight": 1}'
    rows = ",".join(layer % (i, 1 + i % 3) for i in range(13))
    (folder / "layers.json").write_text(f'{{"unit": "ms", "layers": [{rows}]}}')
    order = generate("1f1b", 2, 4)
    one = StageCosts(backward=Duration(2 * 10**6), held_until_input_bytes=1 << 20)
    stages = tuple(replace(one, forward=Duration(n * 10**6)) for n in (1, 2))
    costs = Costs(stages=stages, unit="s", ticks_per_unit=10**9)
    plan = Plan(schedule=order, costs=costs, layers_per_stage=(4, 4), model=TINY)
    dump_plan(folder / "plan.json", plan)
    dump_recording(folder / "step.json", [replace(simulate(order, costs), measured=True)])
    (folder / "steps").mkdir()
    for rank in range(2):
        write(folder / "steps", rank, lines(rank, [7, 8]))
    (folder / "order.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    (folder / "stuck.csv").write_text(
        "0F0,0SEND_F0,0F1,0RECV_B0,0B0,0SEND_F1,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n"
    )
    (folder / "faulty.csv").write_text("0F0,0F1,0B0,0B1\n1F1,1B0,1B1\n")
