"""unbubble partition."""

import json

import pytest

from unbubble.plan import load_plan


def test_the_keys_of_the_contract(unbubble):
    answer = unbubble("partition --layers 61 -p 4 -m 16 --json").json
    naive = answer.pop("naive")
    assert answer == {
        "layers_per_stage": [16, 15, 15, 15],
        "loads": [48, 45, 45, 45],
        "bottleneck": 48,
        "optimal_bottleneck": 48,
        "proven": True,
        "makespan": 894,
        "bubble_fraction": answer["bubble_fraction"],
        "objective": "bottleneck",
        "schedule": "1f1b",
        "microbatches": 16,
        "exports": {
            "deepspeed": "parts = [0, 16, 31, 46, 61]",
            "megatron": '--pipeline-model-parallel-layout "Et*16|t*15|t*15|t*15L"',
            "mindformers": "offset = [1, 0, 0, 0]",
        },
        "unit": "",
    }
    assert naive["layers_per_stage"] == [16, 15, 15, 15]


def test_the_makespan_as_objective(unbubble):
    answer = unbubble("partition --layers 61 -p 4 -m 4 --objective makespan --json").json
    assert answer["layers_per_stage"] == [20, 14, 14, 13]
    assert answer["makespan"] == 307 < answer["naive"]["makespan"] == 318
    assert answer["bottleneck"] > answer["optimal_bottleneck"] == 48


def test_no_stage_is_empty(unbubble):
    assert unbubble("partition --layers 5 -p 4 --json").json["layers_per_stage"] == [2, 1, 1, 1]
    answer = unbubble("partition --layers 42 -p 16 --json").json
    assert answer["layers_per_stage"] == [3] * 10 + [2] * 6


def test_a_split_of_ones_own(unbubble, tmp_path):
    """Megatron-LM#381: 3 layers on stage 0, 4 on stage 1; miles PR#1102: 13 on the last."""
    answer = unbubble("partition --layers 7 -p 2 -m 8 --layers-per-stage 3,4 --json").json
    assert answer["layers_per_stage"] == [3, 4]
    assert answer["exports"]["megatron"] == '--pipeline-model-parallel-layout "Ettt|t*4L"'
    assert (answer["objective"], answer["bottleneck"], answer["optimal_bottleneck"]) == (
        "given", 12, 12)  # fmt: skip
    line = f"partition --layers 61 -p 4 --layers-per-stage 16,16,16,13 -o {tmp_path}/plan.json"
    answer = unbubble(f"{line} --json").json
    assert answer["exports"]["deepspeed"] == "parts = [0, 16, 32, 48, 61]"
    assert load_plan(tmp_path / "plan.json").layers_per_stage == (16, 16, 16, 13)
    assert "given" in unbubble(line).out


HEAVY = """
unit = "ms"
layers = [
  {name = "embedding", forward = 0.1, backward = 0.2},
  {name = "block 0", forward = 1, backward = 2},
  {name = "block 1", forward = 1, backward = 2},
  {name = "block 2", forward = 1, backward = 2},
  {name = "block 3", forward = 1, backward = 2},
  {name = "norm and head", forward = 2, backward = 4},
]
"""


def test_a_costs_file_and_the_plan_that_comes_of_it(unbubble, tmp_path):
    (tmp_path / "costs.toml").write_text(HEAVY)
    line = f"partition -p 2 --costs {tmp_path}/costs.toml -o {tmp_path}/plan.json"
    answer = unbubble(f"{line} --json").json
    assert answer["layers_per_stage"] == [4, 2]
    assert answer["bottleneck"] == pytest.approx(0.0093)
    assert answer["naive"]["bottleneck"] == pytest.approx(0.012)
    assert answer["exports"]["megatron"] == '--pipeline-model-parallel-layout "Ettt|tL"'
    plan = load_plan(tmp_path / "plan.json")
    assert plan.layers_per_stage == (4, 2)
    assert plan.microbatches == 8
    assert plan.prediction.makespan == round(answer["makespan"] * 1e9)
    out = unbubble(line).out
    assert "the smallest possible bottleneck is 9.3 ms" in out
    assert f"written to {tmp_path}/plan.json" in out


def test_several_stages_a_rank(unbubble):
    answer = unbubble("partition --layers 62 -p 4 -v 2 --json").json
    assert sum(answer["layers_per_stage"]) == 62
    assert answer["schedule"] == "interleaved-1f1b"
    assert answer["bottleneck"] == answer["optimal_bottleneck"] == 48
    assert "mindformers" not in answer["exports"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-p 4", "give --costs FILE or --layers N, one of them"),
        ("-p 4 --layers 0", "--layers is 0; it is from 1 to 10000"),
        ("--layers 8", "-p (ranks) is needed"),
        ("-p 0 --layers 8", "-p (ranks) is 0; it is at least 1"),
        ("-p 4 --layers 3", "4 stages need at least 4 layers and there are 3"),
        ("-p 4 -v 2 --layers 7", "8 stages need at least 8 layers and there are 7"),
        ("-p 4 --layers 8 -m 0", "-m (microbatches) is 0"),
        ("-p 4 --layers 8 --objective time", "'time' is not one of 'bottleneck', 'makespan'"),
        ("-p 4 --layers 8 --schedule none", "no schedule is called 'none'"),
        ("-p 4 --layers 8 -o /nonexistent/plan.json", "/nonexistent/plan.json: No such file"),
        (
            "-p 4 --layers 30 --layers-per-stage 7,7,7,7",
            "7,7,7,7 puts 28 layers on 4 stages, and 30 layers go to the 4 stages of 1f1b; 8,8,",
        ),
        (
            "-p 4 --layers 5 --layers-per-stage 2,2,1",
            "puts 5 layers on 3 stages, and 5 layers go t",
        ),
        ("-p 4 --layers 5 --layers-per-stage 2,2,1,0", "--layers-per-stage: 0 is below 1"),
        ("-p 4 --costs none.toml", "none.toml: No such file or directory"),
    ],
)
def test_bad_input(refused, line, message):
    assert message in refused(f"partition {line}")


@pytest.mark.parametrize(
    ("line", "frameworks"),
    [
        ("-p 4", ["deepspeed", "megatron", "mindformers"]),
        ("-p 2 -v 2", ["megatron"]),
        ("-p 2 --schedule zb-v", []),
        ("-p 4 --schedule dualpipe", []),
    ],
)
def test_exports_are_for_frameworks_that_place_the_stages_so(unbubble, line, frameworks):
    """Megatron's layout lays stages out in rounds, and was printed for a V and for two copies."""
    assert list(unbubble(f"partition --layers 12 {line} --json").json["exports"]) == frameworks


def test_one_stage_has_both_ends(unbubble):
    """Its layout was tL, which Megatron refuses: the first is no embedding."""
    layout = unbubble("partition --layers 7 -p 1 --json").json["exports"]["megatron"]
    assert layout == '--pipeline-model-parallel-layout "Et*7L"'


@pytest.mark.parametrize(
    ("names", "split", "layout"),
    [
        ("embed_tokens layers.0 layers.1 layers.2 norm lm_head", "3,3", "Ett|tL"),
        ("embed_tokens layers.0 layers.1 layers.2 norm lm_head", "4,2", "Ettt|L"),
        ("wte wpe drop h.0 h.1 ln_f lm_head", "4,3", "Et|tL"),
        ("0_Embedding 1_LlamaDecoderLayer 2_LlamaDecoderLayer 3_LlamaRMSNorm 4_Linear", "2,3",
         "Et|tL"),
        ("embedding dense.0 moe.1 output_layer", "1,3", "E|ttL"),
        ("embed block.0 block.1 norm head loss", "2,4", "Et|tL"),
        ("layer.0 layer.1 layer.2", "2,1", "Ett|tL"),
        # the norm away from the head, half of the embedding, parts of layers, no head, no layer
        ("embed_tokens layers.0 layers.1 norm lm_head", "4,1", None),
        ("wte wpe h.0 h.1 lm_head", "1,4", None),
        ("embed attn.0 mlp.0 attn.1 mlp.1 head", "3,3", None),
        ("embed layers.0 layers.1 mtp.0 head", "3,2", None),
        ("embed layers.0 layers.1 layers.2", "2,2", None),
        ("embed norm head", "1,2", None),
        ("linear.0 linear.1", "1,1", None),
    ],
)  # fmt: skip
def test_megatrons_layout_counts_layers_alone(unbubble, tmp_path, names, split, layout):
    """The final norm of a profile was one layer more in the layout than the model has, and so was
    a second part of the embedding."""
    row = '{"name": "%s", "forward": 1, "backward_input": 1, "backward_weight": 1}'
    rows = ", ".join(row % name.replace("_", " ", name[0].isdigit()) for name in names.split())
    (tmp_path / "costs.json").write_text(f'{{"layers": [{rows}]}}')
    line = f"partition -p 2 --costs {tmp_path}/costs.json --layers-per-stage {split} --json"
    exports = unbubble(line).json["exports"]
    written = layout and f'--pipeline-model-parallel-layout "{layout}"'
    assert exports.get("megatron") == written


def test_naive_is_one_microbatch_where_none_are_given(unbubble):
    """The default of 4p was refused, though nobody had asked for it."""
    assert unbubble("partition --layers 12 -p 4 --schedule naive --json").json["microbatches"] == 1


def test_a_plan_is_drawn_and_simulated_at_the_same_times(unbubble, tmp_path):
    """It was drawn at F = I = W = 1, whatever its own costs."""
    plan = tmp_path / "plan.json"
    planned = unbubble(f"partition --layers 5 -p 4 --json -o {plan}").json["makespan"]
    assert planned == unbubble(f"simulate --plan {plan} --json").json["makespan"] == 99
    assert "makespan 99 " in unbubble(f"schedule show {plan}").out
    assert "makespan 57 " in unbubble(f"schedule show {plan} --forward 1").out


@pytest.mark.parametrize("schedule", ["zb-1p", "zb-v", "v-half", "zb-h1", "interleaved -v 2"])
def test_what_adapts_to_the_costs_takes_as_long_here_as_simulated(unbubble, tmp_path, schedule):
    """The order was that for equal times: 457 for ZB-1p and 465 for V-Half."""
    costs, plan = tmp_path / "costs.json", tmp_path / "plan.json"
    block = {"forward": 4, "backward_input": 5, "backward_weight": 3}
    ends = [dict.fromkeys(block, 1), {"forward": 8, "backward_input": 9, "backward_weight": 8}]
    costs.write_text(json.dumps({"layers": [ends[0], *[block] * 8, ends[1]]}))
    line = f"--costs {costs} -p 3 -m 9 --schedule {schedule} --json"
    answer = unbubble(f"partition {line} -o {plan}").json
    split = ",".join(map(str, answer["layers_per_stage"]))
    simulated = unbubble(f"simulate {line} --layers-per-stage {split}").json
    assert answer["makespan"] == simulated["makespan"]
    assert answer["makespan"] == unbubble(f"simulate --plan {plan} --json").json["makespan"]
    naive = ",".join(map(str, answer["naive"]["layers_per_stage"]))
    simulated = unbubble(f"simulate {line} --layers-per-stage {naive}").json
    assert answer["naive"]["makespan"] == simulated["makespan"]


def test_pipedream_takes_as_long_here_as_simulated(unbubble, tmp_path):
    plan = tmp_path / "plan.json"
    line = f"partition --layers 12 -p 4 --schedule pipedream -o {plan} --json"
    answer = unbubble(line).json
    assert (answer["makespan"], answer["bubble_fraction"]) == (144, 0)
    assert unbubble(f"simulate --plan {plan} --json").json["makespan"] == 144
    assert load_plan(plan).prediction.makespan == 144
