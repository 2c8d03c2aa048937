"""Options that commands share, and the times and costs that they add up to.

Times are plain numbers in one unit of the caller's, or carry a unit (then results are in seconds).
One number is a whole rank's time, `9,12,7,13` gives those of the ranks or of the stages.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from unbubble import quantity
from unbubble.errors import InputError

if TYPE_CHECKING:
    from unbubble.costs import Costs
    from unbubble.schedule import Schedule

F = TypeVar("F", bound=Callable[..., Any])

TIMES = ("forward", "backward_input", "backward_weight", "backward", "overlapped", "p2p")


def sizes(function: F) -> F:
    """-p, -m and -v."""
    return _add(
        function,
        click.option("-p", "--ranks", type=int, help="Pipeline ranks."),
        click.option("-m", "--microbatches", type=int, help="Microbatches in a step."),
        click.option("-v", "--virtual-stages", "virtual", type=int, help="Stages a rank holds."),
    )


def times(function: F) -> F:
    """--forward and the other times."""
    return _add(
        function,
        click.option("--forward", metavar="TIME", help="F: forward [default: 1]."),
        click.option("--backward-input", metavar="TIME", help="I: input gradient [default: 1]."),
        click.option("--backward-weight", metavar="TIME", help="W: weight gradient [default: 1]."),
        click.option("--backward", metavar="TIME", help="B: full backward [default: I + W]."),
        click.option("--overlapped", metavar="TIME", help="F&B in one [default: F + B]."),
        click.option("--p2p", metavar="TIME", help="c: one transfer between ranks [default: 0]."),
    )


def costs(function: F) -> F:
    """--costs, and how its layers go to stages."""
    return _add(
        function,
        click.option("--costs", "costs_path", metavar="FILE", help="Costs file, TOML or JSON."),
        click.option(
            "--layers-per-stage",
            metavar="N,N,…",
            help="How the layers of the costs file go to stages [default: smallest bottleneck].",
        ),
    )


def pictures(function: F) -> F:
    """--svg, --chrome and --html: the timeline as files (`write_pictures`)."""
    return _add(
        function,
        click.option("--svg", metavar="FILE", help="Write the timeline as a picture."),
        click.option("--chrome", metavar="FILE", help="Write it as a trace for ui.perfetto.dev."),
        click.option("--html", metavar="FILE", help="Write a report as one page."),
    )


json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def _add(function: F, *options: Callable[[F], F]) -> F:
    for option in reversed(options):
        function = option(function)
    return function


def flag(key: str) -> str:
    """The option that a keyword is given by."""
    return "--" + key.replace("_", "-")


class Given(NamedTuple):
    """The times that were given, by option; `unit` is "s" where they carry one."""

    times: dict[str, Fraction | list[Fraction]]
    unit: str


def given_times(options: Mapping[str, Any]) -> Given:
    """Read the options of `times`.

    Raises InputError for what is no time, for times of which only some carry a unit, and where a
    missing time would default to 1 among times that carry one.
    """
    found: dict[str, Fraction | list[Fraction]] = {}
    plain, in_unit = "", ""
    for name in TIMES:
        text = options.get(name)
        if text is None:
            continue
        option = flag(name)
        read = [quantity.time(part, option) for part in text.split(",")]
        for part, (amount, has_unit) in zip(text.split(","), read, strict=True):
            if has_unit:
                in_unit = in_unit or f"{option} {part}"
            elif amount:
                plain = plain or f"{option} {part}"
        amounts = [amount for amount, _ in read]
        found[name] = amounts if len(amounts) > 1 else amounts[0]
    if in_unit and plain:
        raise InputError(
            f"{in_unit} carries a unit and {plain} does not; give all times one, or none"
        )
    if in_unit and ("forward" not in found or not _backward_known(found)):
        raise InputError(
            f"{in_unit} carries a unit, so the times left out cannot default to 1; give --forward, "
            "and --backward-input with --backward-weight or --backward"
        )
    return Given(found, "s" if in_unit else "")


def _backward_known(found: Mapping[str, Any]) -> bool:
    return "backward" in found or {"backward_input", "backward_weight"} <= found.keys()


MAX_COUNT = 10**9


def count(value: int | None, letter: str, name: str, example: int = 4) -> int:
    """A number that must be given and be from 1 to MAX_COUNT."""
    if value is None:
        raise InputError(f"-{letter} ({name}) is needed, as in -{letter} {example}")
    if value < 1:
        raise InputError(f"-{letter} ({name}) is {value}; it is at least 1")
    if value > MAX_COUNT:
        raise InputError(f"-{letter} ({name}) is above {MAX_COUNT}")
    return value


def counts(text: str, option: str) -> tuple[int, ...]:
    """A list of counts, as in 16,15,15,15."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option}: {text[:60]!r} is not a list of counts, as in 4,3,3") from None
    if min(found) < 1:
        raise InputError(f"{option}: {min(found)} is below 1; counts are at least 1")
    return found


def different_counts(text: str, option: str) -> tuple[int, ...]:
    """A list of counts of which none stands there twice."""
    found = counts(text, option)
    if twice := next((n for i, n in enumerate(found) if n in found[:i]), None):
        raise InputError(f"{option}: {twice} is given twice")
    return found


class StageTimes(NamedTuple):
    """The costs of a schedule's stages, and how layers went to them (empty: they did not)."""

    costs: "Costs"
    layers_per_stage: tuple[int, ...] = ()


class CostOptions:
    """The costs that the options of `times` and `costs` give, for any schedule."""

    def __init__(self, options: Mapping[str, Any], *, parts: bool = False):
        """With `parts` a single time is that of the whole model, divided over ranks and stages."""
        self.parts = parts
        self.given = given_times(options)
        self.path: str | None = options.get("costs_path")
        split = options.get("layers_per_stage")
        self.split = counts(split, "--layers-per-stage") if split is not None else ()
        if self.path is not None and self.given.times:
            option = flag(next(iter(self.given.times)))
            raise InputError(f"--costs {self.path} and {option} both give times; use one")
        if self.split and self.path is None:
            raise InputError("--layers-per-stage goes with --costs and its layers")
        self.rows: Costs | None = None
        self.has_layers = False
        if self.path is not None:
            from unbubble.costs_file import load_rows

            self.rows, self.has_layers = load_rows(self.path)

    def order(
        self, name: str, ranks: int | None, microbatches: int | None, virtual: int | None
    ) -> "Schedule":
        """The schedule of a family for -p, -m and -v, made for these costs if it adapts to them."""
        from unbubble.families import family

        entry = family(name)
        p = count(ranks, "p", "ranks")
        m = count(microbatches, "m", "microbatches", 8)
        return entry.fitted(p, m, virtual, costs_of=self.costs_of)

    def costs_of(self, schedule: "Schedule") -> "Costs":
        """The costs of the schedule's stages."""
        return self.of(schedule).costs

    def of(self, schedule: "Schedule") -> StageTimes:
        """The costs of the schedule's stages, and how layers went to them."""
        if self.rows is None:
            return StageTimes(self._uniform(schedule))
        if self.has_layers:
            from unbubble.partition import partition, stage_costs

            splits = schedule.splits_backward
            split = (
                self.split
                or partition(self.rows, schedule.placement, split_backward=splits).layers_per_stage
            )
            return StageTimes(stage_costs(self.rows, split), split)
        if self.split:
            raise InputError(f"{self.path} has stages, and --layers-per-stage is for layers")
        if self.rows.num_stages != schedule.num_stages:
            each, left = divmod(self.rows.num_stages, schedule.ranks)
            hint = "" if left or each == 1 else f"-v {each} for a schedule that takes it; "
            raise InputError(
                f"{self.path} has {self.rows.num_stages} stages and {schedule.name or 'the order'} "
                f"{schedule.num_stages}; they must be the same ({hint}rows named layers are "
                "partitioned)"
            )
        return StageTimes(self.rows)

    def _uniform(self, schedule: "Schedule") -> "Costs":
        from unbubble.costs import Costs

        known = self.given.times
        halves = "backward_input" in known or "backward_weight" in known
        if schedule.splits_backward and "backward" in known and not halves:
            raise InputError(
                f"{schedule.name or 'the schedule'} splits the backward into input and weight "
                "gradient, and --backward alone does not say how long each takes; give "
                "--backward-input and --backward-weight"
            )
        hop = known.get("p2p", Fraction(0))
        if isinstance(hop, list):
            raise InputError(
                "--p2p is one time; a costs file gives every pair of ranks its own under edges"
            )
        rest: dict[str, Any] = {key: value for key, value in known.items() if key != "p2p"}
        if self.parts:
            rest = _shares(rest, schedule.ranks)
        return Costs.uniform(schedule.placement, p2p=hop, unit=self.given.unit, **rest)


def _shares(times: Mapping[str, Any], ranks: int) -> dict[str, Fraction]:
    """A rank's part of a model's times, those left out being 1."""
    whole = {"forward": Fraction(1), **times}
    if "backward" not in times or {"backward_input", "backward_weight"} & times.keys():
        whole = {"backward_input": Fraction(1), "backward_weight": Fraction(1), **whole}
    for key, value in whole.items():
        if isinstance(value, list):
            raise InputError(
                f"{flag(key)} is a list, and with several -p there is one time, that "
                "of the whole model; a costs file with layers is split anew for every p"
            )
    return {key: value / ranks for key, value in whole.items()}
