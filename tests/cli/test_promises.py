"""What every command promises: one JSON object with --json."""

import json

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
