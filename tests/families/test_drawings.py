"""Every family's docstring draws its timetable, and the simulation of what it makes is the same.

A drawing's heading says of what: `[name] p=4 m=8 v=2, F=B=1`, the times being those of one stage.
"""

import importlib
import pkgutil
import re

import pytest
from tests.drawings import cells, grids

from unbubble import families
from unbubble.costs import Costs
from unbubble.report.text import draw
from unbubble.simulate import simulate

HEADING = re.compile(
    r"\s*(?:(?P<name>[a-z0-9-]+) )?p=(?P<p>\d+) m=(?P<m>\d+)(?: v=(?P<v>\d+))?, (?P<times>F\S*=.*)"
)
TIMES = {
    "F": "forward",
    "I": "backward_input",
    "W": "backward_weight",
    "B": "backward",
    "F&B": "overlapped",
    "c": "p2p",
}
MODULES = [
    importlib.import_module(module.name)
    for module in pkgutil.iter_modules(families.__path__, f"{families.__name__}.")
    if not module.name.endswith(".family")
]


def times_of(text, virtual):
    """`F=B=1 I=2` → the keywords of Costs.uniform, for a whole rank."""
    times = {}
    for letters, value in re.findall(r"((?:[FIWBc&]+=)+)(\d+)", text):
        for letter in letters.strip("=").split("="):
            times[TIMES[letter]] = int(value) * (1 if letter == "c" else virtual)
    return times


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.split(".")[-1])
def test_the_docstring_is_the_simulated_timetable(module):
    headings = [h for line in module.__doc__.splitlines() if (h := HEADING.fullmatch(line))]
    drawn = grids(module.__doc__)
    members = {f.name: f for f in getattr(module, "FAMILIES", None) or [module.FAMILY]}
    assert len(headings) == len(drawn) >= 1
    if len(members) > 1:
        assert {h["name"] for h in headings} >= set(members)
    for heading, grid in zip(headings, drawn, strict=True):
        family = members[heading["name"]] if heading["name"] else next(iter(members.values()))
        virtual = int(heading["v"] or 1)
        p, m = int(heading["p"]), int(heading["m"])
        times = times_of(heading["times"], virtual)
        costs = Costs.uniform(family.placement(p, virtual), **times)
        timeline = simulate(family.generate(p, m, virtual, costs=costs), costs)
        assert cells(draw(timeline)) == grid
