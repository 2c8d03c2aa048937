"""Family: what every schedule family says of itself, and the checks they share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import Placement, linear


class Generator(Protocol):
    """Makes the order; parameters are checked already. `costs` may be None (all times equal)."""

    def __call__(
        self, ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: int
    ) -> Schedule: ...


@dataclass(frozen=True, kw_only=True)
class Family:
    """One schedule family. `bubble` and `memory` are its formulas in words, `needs` its rule.

    `virtual` are the v it can take (default first; None after it: any larger one as well),
    `placement(p, v)` where its stages live, `options` the further keywords of `order`.
    """

    name: str
    summary: str
    source: str
    bubble: str
    memory: str
    order: Generator
    needs: str = "any p ≥ 1, m ≥ 1"
    aliases: tuple[str, ...] = ()
    virtual: tuple[int | None, ...] = (1,)
    placement: Callable[[int, int], Placement] = lambda ranks, virtual: linear(ranks)
    splits_backward: bool = False
    options: tuple[str, ...] = ()

    def generate(
        self,
        ranks: int,
        microbatches: int,
        virtual: int | None = None,
        *,
        costs: Costs | None = None,
        **options: int,
    ) -> Schedule:
        """Check the parameters, then make the order."""
        if ranks < 1 or microbatches < 1:
            which, value = ("p (ranks)", ranks) if ranks < 1 else ("m (microbatches)", microbatches)
            raise InputError(f"{which} is {value}; it must be at least 1")
        v = self.virtual[0] if virtual is None else virtual
        assert v is not None
        if v not in self.virtual and not (None in self.virtual and v >= 1):
            known = [str(x) for x in self.virtual if x is not None]
            legal = ", ".join(known) + (" or more" if None in self.virtual else "")
            raise InputError(f"{self.name} has v (stages a rank) of {legal}, not {v}")
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            raise InputError(f"{self.name} has no option {unknown[0]!r}")
        return self.order(ranks, microbatches, v, costs=costs, **options)
