"""The three ways a call ends badly, with the exit status that the command line gives each."""


class UnbubbleError(Exception):
    """Base of every error raised on purpose; the message is one sentence for a person."""

    exit_status = 1


class InputError(UnbubbleError, ValueError):
    """The input is wrong: what, where, the rule it breaks, what would work. Exit status 2."""

    exit_status = 2


class RunError(UnbubbleError, RuntimeError):
    """It ran and failed: a rank lost, gradients differ, a check broke. Exit status 1."""
