"""Variant: a plan with another number of microbatches, other stages a rank, or another family."""

from dataclasses import dataclass, replace
from functools import cached_property

from unbubble.costs import Costs
from unbubble.errors import InputError
from unbubble.families import Family, families, family
from unbubble.partition import partition, stage_costs
from unbubble.plan import Plan
from unbubble.schedule import Placement, Schedule
from unbubble.schedule.lowering import compute_only


@dataclass(frozen=True)
class Variant:
    """Plans of one family with v stages a rank, made from one plan, for any m.

    Where the stages live as in the plan they are its own; elsewhere its layers are partitioned.
    """

    plan: Plan
    family: Family
    virtual: int

    @cached_property
    def placement(self) -> Placement:
        return self.family.placement(self.plan.schedule.ranks, self.virtual)

    @property
    def layers_per_stage(self) -> tuple[int, ...]:
        return self._stages[0]

    @property
    def costs(self) -> Costs:
        return self._stages[1]

    @cached_property
    def _stages(self) -> tuple[tuple[int, ...], Costs]:
        plan = self.plan
        if self.placement == plan.schedule.placement:
            return plan.layers_per_stage, plan.costs
        if plan.layers is None:
            raise InputError(
                f"the plan has the costs of its {plan.schedule.num_stages} stages, and "
                f"{self.family.name} with v = {self.virtual} places them otherwise; a plan with "
                "`layers` can be partitioned anew, as `unbubble partition -o` writes it"
            )
        split = partition(
            plan.layers, self.placement, split_backward=self.family.splits_backward
        ).layers_per_stage
        return split, stage_costs(plan.layers, split)

    def _by_stage(self, key: str) -> tuple[str, ...]:
        """Recompute or sharding of the stages: the plan's, where it can be told."""
        kinds: tuple[str, ...] = getattr(self.plan, key)
        if self.placement == self.plan.schedule.placement:
            return kinds
        if len({*kinds}) > 1:
            raise InputError(
                f"the plan's {key} differs from stage to stage, which says nothing of the stages "
                f"of {self.family.name} with v = {self.virtual}"
            )
        return kinds[:1] * self.placement.num_stages

    def schedule(self, microbatches: int) -> Schedule:
        return self.family.fitted(
            self.plan.schedule.ranks,
            microbatches,
            self.virtual,
            costs_of=lambda schedule: self.costs,
        )

    def with_microbatches(self, microbatches: int) -> Plan:
        """The plan for m microbatches. Raises InputError where it cannot be had."""
        return replace(
            self.plan,
            schedule=self.schedule(microbatches),
            costs=self.costs,
            layers_per_stage=self.layers_per_stage,
            recompute=self._by_stage("recompute"),
            sharding=self._by_stage("sharding"),
            prediction=None,
        )


def variant(plan: Plan, name: str | None = None, virtual: int | None = None) -> Variant:
    """The plan's own family and v where none are given.

    Raises InputError where the plan's order is not one that a family makes, or its layers do not
    go to the stages that are asked for.
    """
    schedule = plan.schedule
    own = schedule.num_stages // schedule.ranks
    if name is None:
        entry = _own(schedule)
        virtual = own if virtual is None else virtual
    else:
        entry = family(name)
        if virtual is None and own > 1 and entry.takes(own):
            virtual = own
    found = Variant(plan, entry, entry.stages_a_rank(virtual))
    assert found.costs.num_stages == found.placement.num_stages
    return found


def _own(schedule: Schedule) -> Family:
    """The family of a plan's order, by its name; what it makes has to be that order."""
    if schedule.name.partition(":")[0] not in families():
        raise InputError(
            f"the plan's schedule is {schedule.name or 'custom'!r}, which is no known family, so "
            "it cannot be made for other numbers of microbatches; give --schedule NAME for one "
            "that can"
        )
    entry = family(schedule.name)
    virtual = schedule.num_stages // schedule.ranks
    made = entry.generate(schedule.ranks, schedule.microbatches, virtual)
    if not entry.adapts and made.codes != compute_only(schedule).codes:
        raise InputError(
            f"the plan's schedule is called {schedule.name} and its order is another one, so it "
            "cannot be made for other numbers of microbatches; give --schedule NAME"
        )
    return entry
