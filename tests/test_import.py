"""The public names, and what importing them must not load."""

import re
import subprocess
import sys
from pathlib import Path

import unbubble

LIBRARY = Path(__file__).parents[1] / "docs" / "library.md"


def test_all_is_exactly_what_can_be_imported():
    assert list(unbubble.__all__) == sorted(unbubble._HOME)
    for name in unbubble.__all__:
        assert getattr(unbubble, name) is not None


def test_the_documentation_names_all_of_them_and_its_example_runs():
    page = LIBRARY.read_text("utf-8")
    names = re.findall(r"`(\w+)`", "".join(re.findall(r"(?m)^\|.*", page)))
    assert sorted(names) == list(unbubble.__all__)
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    out = subprocess.check_output([sys.executable, "-c", example], text=True)
    assert out.split() == ["3/11", "9"]


def test_import_loads_nothing_heavy():
    code = (
        "import unbubble, sys; "
        "print([m for m in ('torch', 'numpy', 'ortools', 'rich', 'click') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_name_means_the_same_whatever_was_imported_before():
    code = (
        "import unbubble.simulate, unbubble.partition, unbubble.attribution; "
        "from unbubble import partition, simulate; "
        "print(callable(simulate), simulate is unbubble.simulate, partition is unbubble.partition)"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.split() == ["True", "True", "True"]
