"""The ways a call ends badly, each with its exit status on the command line, and their words."""


class UnbubbleError(Exception):
    """Base of every error raised on purpose; the message is one sentence for a person."""

    exit_status = 1


class InputError(UnbubbleError, ValueError):
    """The input is wrong: what, where, the rule it breaks, what would work. Exit status 2."""

    exit_status = 2


class RunError(UnbubbleError, RuntimeError):
    """It ran and failed: a rank lost, gradients differ, a check broke. Exit status 1."""


def excerpt(value: object) -> str:
    """The first characters of what a message shows and may be of any length."""
    # hex: str refuses the longest integers
    text = hex(value) if isinstance(value, int) and abs(value) > 10**40 else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
