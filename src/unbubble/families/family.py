"""Family: what every schedule family says of itself, and the checks they share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import Placement, linear

Option = int | str
"""A family's further keywords are numbers or words."""

MAX_STAGES = 1 << 14
"""The most stages that are scheduled: beyond it the question is a slip of the keyboard."""
MAX_CELLS = 1 << 24
"""The most stages × microbatches: beyond it a machine's memory is at stake."""

_REACH = 10_000  # how far from the given value a legal one is looked for


class Generator(Protocol):
    """Makes the order, which the family then names; parameters are checked already. `costs` may be
    None (all times equal)."""

    def __call__(
        self, ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
    ) -> Schedule: ...


class Rule(Protocol):
    """The rule that these parameters break, in words and whose it is; empty where they are legal.

    p, m, v are at least 1 and v is one that the family can have. Raises InputError for an option
    that is wrong whatever the parameters.
    """

    def __call__(self, ranks: int, microbatches: int, virtual: int, **options: Option) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Family:
    """One schedule family. `bubble` and `memory` are its formulas in words, `needs` its rule.

    `broken_rule` is that rule as code, `virtual` are the v it can take (default first; None after
    it: any other of at least 1 as well), `placement(p, v)` where its stages live, `adapts` whether
    `order` heeds the costs, `options` the further keywords of `order` and `broken_rule`, `preset`
    those of them that are chosen already.
    """

    name: str
    summary: str
    source: str
    bubble: str
    memory: str
    order: Generator
    needs: str = "any p ≥ 1, m ≥ 1"
    broken_rule: Rule = lambda ranks, microbatches, virtual, **options: ""
    aliases: tuple[str, ...] = ()
    virtual: tuple[int | None, ...] = (1,)
    placement: Callable[[int, int], Placement] = lambda ranks, virtual: linear(ranks)
    splits_backward: bool = False
    adapts: bool = False
    options: tuple[str, ...] = ()
    preset: tuple[tuple[str, Option], ...] = ()

    @property
    def base(self) -> str:
        """The name without the options that were chosen."""
        return self.name.partition(":")[0]

    def with_options(self, **options: Option) -> "Family":
        """The family with these options chosen, which its name then tells: `name:key=value`."""
        self._check_known(options)
        chosen = {**dict(self.preset), **options}
        name = ":".join([self.base, *(f"{key}={value}" for key, value in chosen.items())])
        return replace(self, name=name, aliases=(), preset=tuple(chosen.items()))

    def generate(
        self,
        ranks: int,
        microbatches: int,
        virtual: int | None = None,
        *,
        costs: Costs | None = None,
        **options: Option,
    ) -> Schedule:
        """Check the parameters, then make the order."""
        v = self.check(ranks, microbatches, virtual, **options)
        options = {**dict(self.preset), **options}
        if self.adapts and costs is not None:
            stages = self.placement(ranks, v).num_stages
            if costs.num_stages != stages:
                raise InputError(
                    f"the costs have {costs.num_stages} stages and {self.name} {stages}; they must "
                    "be the same"
                )
        return self.order(ranks, microbatches, v, costs=costs, **options).named(self.name)

    def fitted(
        self,
        ranks: int,
        microbatches: int,
        virtual: int | None = None,
        *,
        costs_of: Callable[[Schedule], Costs],
        **options: Option,
    ) -> Schedule:
        """The order for costs that are known once its stages are; made for them if it adapts."""
        schedule = self.generate(ranks, microbatches, virtual, costs=None, **options)
        if not self.adapts:
            return schedule
        return self.generate(ranks, microbatches, virtual, costs=costs_of(schedule), **options)

    def check(
        self, ranks: int, microbatches: int, virtual: int | None = None, **options: Option
    ) -> int:
        """Check the parameters without making anything; returns v, the default where it is None.

        Raises InputError naming the rule and the nearest values that work.
        """
        for what, value in (("p (ranks)", ranks), ("m (microbatches)", microbatches)):
            if value < 1:
                raise InputError(f"{what} is {value}; it must be at least 1")
        v = self.stages_a_rank(virtual)
        for what, value, most in (
            ("p·v stages", ranks * v, MAX_STAGES),
            ("p·v·m stages × microbatches", ranks * v * microbatches, MAX_CELLS),
        ):
            if value > most:
                raise InputError(f"{what} are {value}; schedules of at most {most} are made")
        self.check_rule(ranks, microbatches, v, **options)
        return v

    def takes(self, virtual: int) -> bool:
        """Whether it can have v stages a rank."""
        return virtual in self.virtual or (None in self.virtual and virtual >= 1)

    def stages_a_rank(self, virtual: int | None) -> int:
        """v, the default where it is None. Raises InputError where the family cannot have it."""
        v = self.virtual[0] if virtual is None else virtual
        assert v is not None
        if not self.takes(v):
            legal = "at least 1" if None in self.virtual else ", ".join(map(str, self.virtual))
            raise InputError(f"{self.name} has v (stages a rank) of {legal}, not {v}")
        return v

    def check_rule(self, ranks: int, microbatches: int, virtual: int, **options: Option) -> None:
        """The family's own rule, for schedules of any size. Raises InputError naming the rule and
        the nearest values that work."""
        self._check_known(options)
        options = {**dict(self.preset), **options}
        if rule := self.broken_rule(ranks, microbatches, virtual, **options):
            near = self._nearest(ranks, microbatches, virtual, options)
            raise InputError(f"{self.name} with p = {ranks}, m = {microbatches}: {rule}{near}")

    def next_legal(self, ranks: int, microbatches: int, virtual: int) -> int:
        """The smallest m that the family's own rule allows, from the given one on."""
        options = dict(self.preset)
        for m in range(microbatches, microbatches + _REACH):
            if not self.broken_rule(ranks, m, virtual, **options):
                return m
        self.check_rule(ranks, microbatches, virtual)
        return microbatches

    def _check_known(self, options: dict[str, Option]) -> None:
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            known = f"; its options are {', '.join(self.options)}" if self.options else ""
            raise InputError(f"{self.name} has no option {unknown[0]!r}{known}")

    def _nearest(
        self, ranks: int, microbatches: int, virtual: int, options: dict[str, Option]
    ) -> str:
        def legal(p: int, m: int) -> bool:
            return not self.broken_rule(p, m, virtual, **options)

        if near := nearest(microbatches, lambda m: legal(ranks, m)):
            return f"; with p = {ranks} the nearest m that work: {near}"
        near = nearest(ranks, lambda p: legal(p, microbatches))
        return f"; with m = {microbatches} the nearest p that work: {near}" if near else ""


def nearest(value: int, legal: Callable[[int], bool]) -> str:
    """The nearest legal values of at least 1 below and above, as text; empty where there is none.

    >>> nearest(9, lambda m: m % 4 == 0)
    '8 or 12'
    """
    below = next((x for x in range(value - 1, max(value - _REACH, 0), -1) if legal(x)), None)
    above = next((x for x in range(value + 1, value + _REACH) if legal(x)), None)
    return " or ".join(str(x) for x in (below, above) if x is not None)
