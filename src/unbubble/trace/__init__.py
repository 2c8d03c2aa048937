"""Traces of all formats, read into a Timeline."""
