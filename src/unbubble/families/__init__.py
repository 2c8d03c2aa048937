"""The registry of schedule families. A further family is one new file in this folder.

Each file defines `FAMILY` (or `FAMILIES`), with its drawn timetable in the module's docstring.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from unbubble.costs import Costs
from unbubble.errors import InputError, bare, excerpt, names_like, suggestion
from unbubble.families.family import Family, Option
from unbubble.schedule.order import Schedule

__all__ = ["Family", "families", "family", "generate"]


@cache
def families() -> dict[str, Family]:
    """Every family by its name, in alphabetical order."""
    found: list[Family] = []
    for module in iter_modules(__path__):
        if module.name != "family":
            loaded = import_module(f"{__name__}.{module.name}")
            found += getattr(loaded, "FAMILIES", None) or [loaded.FAMILY]
    return {f.name: f for f in sorted(found, key=lambda f: f.name)}


def family(name: str) -> Family:
    """A family by its name or one of its aliases; case and punctuation are ignored.

    The name may carry options, each behind a colon: `interleaved-1f1b:rule=megatron:group=8`.
    Raises InputError that names the nearest known names.
    """
    name, *options = name.split(":")
    wanted = bare(name)
    for entry in families().values():
        if wanted in map(bare, (entry.name, *entry.aliases)):
            return entry.with_options(**dict(map(_option, options))) if options else entry
    known = [*families(), *(alias for entry in families().values() for alias in entry.aliases)]
    near = suggestion(name, known if names_like(name, known, bare) else families(), bare)
    raise InputError(
        f"no schedule is called {excerpt(name)!r}; {near} (`unbubble schedule list` tells of all)"
    )


def generate(
    name: str,
    ranks: int,
    microbatches: int,
    virtual: int | None = None,
    *,
    costs: Costs | None = None,
    **options: Option,
) -> Schedule:
    """The schedule of a family for p ranks, m microbatches and v stages a rank.

    `costs` guide the families that adapt to them (ZB-1p, ZB-2p, V-Half, …); others ignore them.
    `options` are the family's own, as `rule="megatron", group=8` of interleaved-1f1b.
    Raises InputError naming the rule and the nearest values that work.
    """
    return family(name).generate(ranks, microbatches, virtual, costs=costs, **options)


def _option(text: str) -> tuple[str, Option]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals and value) or "," in value:
        raise InputError(
            f"{excerpt(text)!r} is not an option of a schedule; write name:key=value:key=value"
        )
    is_number = value.isascii() and value.isdecimal() and len(value) < 19
    return key, int(value) if is_number else value[:60]
