"""A kernel's source as plain Python, to be compared with what is compiled."""

import importlib.util
from pathlib import Path

import pytest


def uncompiled(kernel):
    """The kernel as Python; skips where it is that already, as then nothing would be compared."""
    if kernel.__file__.endswith(".py"):
        pytest.skip(f"{kernel.__name__} is not compiled: there was no Cython or no C compiler")
    source = Path(kernel.__file__).with_name("kernel.py")
    spec = importlib.util.spec_from_file_location(f"uncompiled_{kernel.__name__}", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
