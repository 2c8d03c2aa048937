"""What every command promises: one JSON object with --json, and help with a mistyped name."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import click
import pytest
from tests.cli.examples import EXAMPLES, VERDICTS, lay_out

from unbubble.cli import cli

CALLS = [f"{command} {rest}".strip() for command, more in EXAMPLES.items() for rest in more]


def commands(group=cli, path=()):
    """Every command by its words; groups are gone into."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_every_command_has_an_example_and_takes_json():
    """`schedule export` did not."""
    found = dict(commands())
    assert found.keys() == EXAMPLES.keys()
    takes = {
        name for name, command in found.items() if any("--json" in o.opts for o in command.params)
    }
    assert takes == found.keys()


def test_every_option_is_explained_and_no_line_of_help_is_cut_short():
    """`compare --schedules` and five more had no word; `schedule` told that a file is consistent
    and..."""
    for name, command in commands():
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, (name, option.opts)
        assert not command.get_short_help_str(66).endswith("...") or " " not in name, name


@pytest.fixture
def laid_out(tmp_path, monkeypatch):
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("call", CALLS)
def test_the_answer_is_one_object_with_a_unit(unbubble, laid_out, call):
    """`watch` told an object a step without their unit."""
    if "--draw " in f"{call} ":
        call = call.replace(" --draw", "")
    result = unbubble(f"{call} --json")
    assert result.status == (3 if call in VERDICTS else 0), result
    objects = result.out.splitlines() if call.startswith("watch --once") else [result.out]
    for text in objects:
        answer = json.loads(text)
        assert isinstance(answer, dict)
        assert isinstance(answer["unit"], str)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("simulate -p 4 -m 8 --schedule 1f2b", "no schedule is called '1f2b'; did you mean 1f1b"),
        ("compare -p 4 -m 8 --schedules gpipe,zbh3", "'zbh3'; did you mean zb-h2, zb-h1 or zb-v?"),
        ("sweep -p 4 --schedule InterleavedZeroBubbel", "did you mean InterleavedZeroBubble"),
        ("bubble -p 4 -m 8 --schedule dualpip", "did you mean dualpipe, dualpipe-v or"),
        ("partition --layers 8 -p 2 --schedule nope", "'nope'; known are 1f1b, chimera"),
        ("bubble -p 4 -m 8 --framework megatorn", "for 'megatorn'; did you mean megatron"),
        ("bubble --pp 8 -m 64", "No such option '--pp'; it is -p or --ranks here"),
        ("bubble -p 8 --gbs 64", "No such option '--gbs'; it is --global-batch here"),
        ("simulate --vpp 2", "No such option '--vpp'; it is -v or --virtual-stages here"),
        ("watch --gbs 64", "No such option '--gbs'. (see unbubble watch --help)"),
        ("validate zerobubble", "is called 'zerobubble'; did you mean zero-bubble?"),
        ("simulat", "No such command 'simulat'; did you mean simulate?"),
        ("schedule lst", "No such command 'lst'; did you mean list?"),
        ("run plan.json --model unbubble.runtime.decoder:tyni", "'tyni'; did you mean tiny"),
        ("simulate -p 2 -m 2 --schedule 1f1b --costs mistyped.toml", "did you mean channel?"),
    ],
)
def test_a_mistyped_name_is_answered_with_those_like_it(refused, laid_out, line, message):
    """Frameworks, publications, commands and models were not."""
    row = "stages = [{forward = 1, backward = 2}, {forward = 1, backward = 2}]"
    Path("mistyped.toml").write_text(f'chanel = "rank"\n{row}')
    found = refused(line)
    assert message in found
    assert ("`unbubble schedule list`" in found) is ("no schedule is called" in found)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("show 1f1b -p 4 -m 8", "No such command 'show'; did you mean schedule show?"),
        ("simulate --schedule 1f1b -p 4 -m 8 --draws 9", "give --jitter"),
        ("simulate --schedule 1f1b -p 4 -m 8 --seed 0", "give --jitter"),
        ("schedule show interleaved-1f1b:rule=megatron,group=4 -p 4 -m 8", "name:key=value:key"),
        ("trace step.json --max-bubble 5", "--max-bubble 5 is 500% of the step"),
        ("trace step.json --min-compute 80", "write 5% or 0.05"),
        ("trace step.json --layout foo", "--layout foo: write sizes fastest first"),
        ("run layers.json", "layers.json: it is a costs file; a plan file was expected there"),
        ("trace step.json --plan step.json", "step.json: it is a recording of a run; a plan"),
        ("partition -p 2 --costs plan.json", "plan.json: it is a plan; a costs file"),
        ("simulate --plan order.csv", "a plan file was expected there"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(refused, laid_out, line, message):
    """A limit of 500 % never spoke, draws without jitter and a recording's layout were passed
    over; of a file in another's place an unknown key was told."""
    Path("order.csv").write_text("0F0,0B0\n")
    assert message in refused(line)


def test_what_is_the_matter_with_every_schedule_is_said_once(refused):
    """A list of too few times was told six times."""
    found = refused("compare -p 4 -m 8 --schedules 1f1b,gpipe,zb-h1 --forward 1,2")
    assert found.count("2 times for 4 ranks") == 1


def test_a_refused_schedule_is_named_once(unbubble):
    lines = unbubble("compare -p 3 -m 4 --schedules dualpipe,1f1b").out.splitlines()
    assert lines[-1].startswith("dualpipe with p = 3, m = 4: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("simulate --schedule 1f1b -p 2 -m 2 --svg new --html new", "--svg and --html both write"),
        ("trace step.json --write-costs new --save ./new", "--write-costs and --save both write"),
        ("trace step.json --write-costs step.json", "would replace a file that this command reads"),
        ("trace . --chrome step.json", "would replace a file that this command reads"),
        ("trace step.json --plan plan.json --svg plan.json", "--svg plan.json would replace"),
        ("simulate --plan plan.json --html plan.json", "--html plan.json would replace"),
        ("partition --costs costs.json -p 2 -o costs.json", "-o costs.json would replace"),
        ("run plan.json --svg new --chrome new", "--svg and --chrome both write"),
        ("run plan.json --recording plan.json", "--recording plan.json would replace"),
    ],
)
def test_no_output_takes_the_place_of_another_file(refused, apart, line, message):
    """A trace was replaced by the costs that were read from it, without a word."""
    before = {path: path.read_bytes() for path in apart.iterdir()}
    assert message in refused(line)
    assert {path: path.read_bytes() for path in apart.iterdir()} == before


def test_what_lies_beside_the_traces_and_the_plan_may_be_written_anew(unbubble, apart):
    for _ in range(2):
        line = "trace . --plan plan.json --write-costs costs.json --write-plan plan.json"
        assert unbubble(line).status == 0


@pytest.fixture
def apart(tmp_path, monkeypatch):
    """A folder with a recording, a plan and costs, to be in."""
    from unbubble import simulate
    from unbubble.costs import Costs, Duration, StageCosts
    from unbubble.costs_file import dump_costs
    from unbubble.families import generate
    from unbubble.plan import Plan, dump_plan
    from unbubble.trace.recording import dump_recording

    monkeypatch.chdir(tmp_path)
    stage = StageCosts(forward=Duration(1), backward=Duration(2))
    costs = Costs(stages=(stage,) * 2, unit="s")
    order = generate("1f1b", 2, 4)
    dump_costs("costs.json", costs)
    dump_plan("plan.json", Plan(schedule=order, costs=costs))
    step = replace(simulate(order, costs), measured=True)
    dump_recording("step.json", [step])
    return tmp_path


def test_a_trace_in_the_folder_of_its_plan(unbubble, tmp_path):
    """`trace .` behind `partition` and `run` listed the keys of our own files."""
    lay_out(tmp_path)
    shutil.rmtree(tmp_path / "steps")
    ignored = unbubble("trace", tmp_path, "--json").json["ignored"]
    told = {Path(path).name: what for path, _, what in (line.partition(": ") for line in ignored)}
    assert (told["plan.json"], told["layers.json"]) == ("a plan", "a costs file")
    assert "it holds a plan" in unbubble("trace", tmp_path / "plan.json").err
