"""Real traces: one module a format, joined into measured Timelines."""

from unbubble.trace.assembly import Pipeline
from unbubble.trace.reading import Trace, read

read_trace = read

__all__ = ["Pipeline", "Trace", "read", "read_trace"]
