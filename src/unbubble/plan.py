"""Plan: everything that a run needs to be repeated, and its file."""
