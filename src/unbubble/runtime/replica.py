"""Replica: what of a plan is run here: one pipeline replica, a process a rank, in plain PyTorch.

honoured   schedule, layers_per_stage; recompute "full" where the backward is not split
left out   dp > 1, sharding, a target other than PyTorch, costs that are in no seconds: a run
           says so, and what it measures is still a step of the predicted kind
refused    tp, cp, ep, etp > 1, zero3 over several replicas, recompute "selective", with a
           split backward, or in the costs alone: the measured step would be of something else
           than the predicted one;
           and what PyTorch's runtime has not: copies of stages, no flush
"""

from collections.abc import Sequence

from unbubble.errors import InputError, some
from unbubble.plan import PARALLEL, Plan
from unbubble.prediction import lowered
from unbubble.runtime.run import Setup

TARGETS = ("", "pytorch", "torch")
"""The targets, in small letters, whose runtime is the one that runs the plan."""


def target_of(plan: Plan, model: str | None, path: str) -> str:
    """The model that is run: the one given, else the plan's; `path` names the plan in messages.

    Raises InputError where there is none, or nothing says how its layers go to the stages.
    """
    target = model or plan.model
    if not target:
        raise InputError(f"{path}: the plan names no model; give --model MODULE:FUNCTION")
    if not plan.layers_per_stage:
        raise InputError(
            f"{path}: the plan does not say how many layers each stage has, which a run needs: "
            "layers_per_stage, as `unbubble partition -o` writes it"
        )
    return target


def setup(plan: Plan) -> Setup:
    """What is run of a plan that `left_out` does not refuse."""
    recompute = [kind == "full" for kind in plan.recompute]
    return Setup(lowered(plan.schedule), plan.layers_per_stage, recompute)


def left_out(plan: Plan) -> list[str]:
    """What a run of the plan does not do, a sentence each that names key and value.

    Raises InputError where the step that it would measure is not the one that the plan predicts.
    """
    for key in PARALLEL:
        if (size := plan.parallel.get(key, 1)) > 1:
            raise InputError(
                f"the plan's parallel.{key} is {size}: its stages are each shared by {size} "
                "devices, and every stage is run here by one process in plain PyTorch, which "
                "would be compared with the prediction of something else; give a plan whose costs "
                f"are those of one device ({key} 1), or run this one in its framework and read "
                "that trace with `unbubble trace --plan`"
            )
    schedule = plan.schedule
    if not schedule.flush or schedule.placement.copies > 1:
        what = "never flushes" if not schedule.flush else "keeps copies of every stage"
        raise InputError(
            f"{schedule.name or 'the schedule'} {what}, which PyTorch's runtime cannot run; "
            "`unbubble simulate --plan` predicts it"
        )
    found = []
    dp = plan.batch.dp
    if dp > 1:
        found.append(
            f"batch.dp is {dp}: one replica is run, without the reduction of gradients over {dp}"
        )
    found += _sharding(plan)
    _recompute(plan)
    if plan.target.lower() not in TARGETS:
        found.append(
            f"target is {plan.target!r}: the plan is run by PyTorch's runtime, the only target "
            "that is known here (pytorch)"
        )
    if plan.costs.unit != "s":
        unit = f"{plan.costs.unit!r}" if plan.costs.unit else "no unit"
        found.append(
            f"costs are in {unit}: the predicted step is in that and no time in seconds, so its "
            "error says nothing"
        )
    return found


def _sharding(plan: Plan) -> list[str]:
    kinds = sorted({*plan.sharding} - {"none"})
    if not kinds:
        return []
    if "zero3" in kinds and plan.batch.dp > 1:
        raise InputError(
            f"the plan's sharding is zero3 on {_stages(plan.sharding, 'zero3')}: there the weights "
            f"are gathered from {plan.batch.dp} replicas (batch.dp) inside every action, and one "
            "replica is run here; give a plan with zero1, zero2 or none, or run this one in its "
            "framework and read that trace with `unbubble trace --plan`"
        )
    shown = "; ".join(f"{kind} on {_stages(plan.sharding, kind)}" for kind in kinds)
    return [f"sharding is {shown}: one replica is run, which holds its whole state"]


def _recompute(plan: Plan) -> None:
    if "selective" in plan.recompute:
        raise InputError(
            f"the plan's recompute is selective on {_stages(plan.recompute, 'selective')}, and "
            "which parts of a layer that means is the framework's own; run here are none and full"
        )
    if "full" in plan.recompute and plan.schedule.splits_backward:
        raise InputError(
            f"the plan's recompute is full on {_stages(plan.recompute, 'full')}, and its schedule "
            "splits the backward: PyTorch then runs the forward again for I and once more for W, "
            "and the plan counts it once; take a schedule with full backwards (1f1b, "
            "interleaved-1f1b) or recompute none"
        )
    bare = [
        stage
        for stage, kind in enumerate(plan.recompute)
        if kind == "full" and not plan.costs.stages[stage].recompute.total
    ]
    if bare:
        raise InputError(
            f"the plan's recompute is full on {_named(bare)}, and the costs have no time for it "
            "there, so the prediction would lack it; give those stages a `recompute` (about their "
            "forward)"
        )
    kinds = plan.recompute or ("none",) * plan.costs.num_stages
    idle = [
        stage
        for stage, (kind, costs) in enumerate(zip(kinds, plan.costs.stages, strict=True))
        if kind == "none" and (costs.recompute.total or costs.recompute_weight.total)
    ]
    if idle:
        raise InputError(
            f"the costs have a `recompute` on {_named(idle)}, and the plan's recompute is none "
            "there, so the step would lack what the prediction counts; give those stages recompute "
            "full, or leave the times out of the costs"
        )


def _stages(kinds: Sequence[str], kind: str) -> str:
    return _named([stage for stage, found in enumerate(kinds) if found == kind])


def _named(stages: Sequence[int]) -> str:
    return f"stage{'s' if len(stages) > 1 else ''} {some(stages)}"
