"""The command line: one file a command, loaded when it is called.

Exit status: 0 good · 1 it ran and failed · 2 the input is wrong · 3 a verdict found faults or a
threshold was passed · 130 interrupted. Never a traceback (set UNBUBBLE_DEBUG=1 to see one).
"""

import os
import signal
import sys
from importlib import import_module
from io import TextIOWrapper

import click

from unbubble import __version__
from unbubble.errors import FULL, UnbubbleError, excerpt, suggestion

COMMANDS = {
    "bubble": "closed forms of the bubble, instantly",
    "simulate": "exact simulation of a schedule with given costs",
    "compare": "the same costs under many schedules",
    "sweep": "more microbatches, until they stop paying",
    "partition": "layers to stages, exactly",
    "schedule": "list, draw, export and prove schedules",
    "profile": "measured costs of a real model, layer by layer",
    "run": "a plan for real, beside its prediction",
    "trace": "where a real step went, and what to change",
    "watch": "a running job's steps as they happen, for people and for Prometheus",
    "validate": "published figures, recomputed",
    "demo": "the whole loop on this machine",
}
"""Command name → one line of help; the command is `command` in `unbubble.cli.<name>`."""

SAID = {
    "--pp": "--ranks", "--pp-size": "--ranks", "--pipeline-model-parallel-size": "--ranks",
    "--vp": "--virtual-stages", "--vpp": "--virtual-stages",
    "--num-virtual-stages-per-pipeline-rank": "--virtual-stages",
    "--gas": "--microbatches", "--gradient-accumulation-steps": "--microbatches",
    "--num-microbatches": "--microbatches", "--gbs": "--global-batch",
    "--global-batch-size": "--global-batch", "--mbs": "--micro-batch",
    "--micro-batch-size": "--micro-batch", "--num-layers": "--layers",
}  # fmt: skip
"""What training frameworks call an option, and what it is called here."""


class Group(click.Group):
    """Commands; a name that is none of them is answered with those like it."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if args[0].startswith("-"):
                raise
            names = self.list_commands(ctx)
            groups = [(name, self.get_command(ctx, name)) for name in names]
            within = [f"{name} {args[0]}" for name, group in groups
                      if isinstance(group, click.Group) and args[0] in group.commands]  # fmt: skip
            near = f"did you mean {within[0]}?" if within else suggestion(args[0], names)
            raise click.UsageError(f"No such command {excerpt(args[0])!r}; {near}", ctx) from None


class LazyGroup(Group):
    """Loads a command's module only when the command is used or its help is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"unbubble.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Plan, run and explain pipeline-parallel training."""


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit the process."""
    # closed by whoever started us, as in `>&-`: the work is done all the same, nobody is told
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # a terminal that has no minus sign or × shows ? there
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    for ending in (signal.SIGTERM, signal.SIGHUP):
        # what ends us cleans up like an interrupt; one rank of a torchrun has to go at once
        if signal.getsignal(ending) is signal.SIG_DFL and "RANK" not in os.environ:
            signal.signal(ending, signal.default_int_handler)
    try:
        status = invoke(args)
    except KeyboardInterrupt:  # one more, while the first was told of
        status = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # told of already; what is still buffered must not fail once more at the very end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if "torch.distributed" in sys.modules:
        # one rank of a torchrun: gloo's threads may outlive their group and abort the
        # interpreter's own end ("terminate called without an active exception")
        os._exit(status)
    sys.exit(status)


def invoke(args: list[str] | None = None) -> int:
    """Run the command line; returns the exit status instead of leaving the process."""
    try:
        status = cli.main(args, prog_name="unbubble", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        where = f" (see {context.command_path} --help)" if context else ""
        return _fail(f"{_translated(error) or error.format_message()}{where}", 2)
    except UnbubbleError as error:
        return _fail(str(error), error.exit_status)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", 130)
    except BrokenPipeError:
        return 1  # whoever read our output has gone: leave quietly
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        status = 2 if name and error.errno not in FULL else 1
        return _fail(f"{name}{error.strerror or error}", status)
    except Exception as error:
        if _interrupted(error):
            return _fail("interrupted", 130)
        if os.environ.get("UNBUBBLE_DEBUG"):
            raise
        return _fail(
            f"internal error: {type(error).__name__}: {error}; please report it "
            "(UNBUBBLE_DEBUG=1 shows where)",
            1,
        )


def _interrupted(error: BaseException) -> bool:
    """Whether an interrupt is behind it: while a class is made, Python raises another error from
    what a descriptor's `__set_name__` raises."""
    cause = error.__cause__
    return cause is not None and (isinstance(cause, KeyboardInterrupt) or _interrupted(cause))


def _translated(error: click.ClickException) -> str:
    """What an option is called here that was given by another tool's name; empty for others."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return ""
    ours = SAID.get(error.option_name)
    for option in error.ctx.command.params:
        if ours in option.opts:
            return f"No such option {error.option_name!r}; it is {' or '.join(option.opts)} here"
    return ""


def _fail(message: str, status: int) -> int:
    click.echo(f"unbubble: {message}", err=True)
    return status
