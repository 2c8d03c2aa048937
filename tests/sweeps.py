"""Sweeps whose steps are simulated at other costs in the place of processes.

The pipelines are of 2 ranks, F = 1 ms, B = 2 ms and no communication, so that (m + 1) × 3 ms are
predicted; what is measured is what `Runner` is told to make slower.
"""

from dataclasses import replace

from unbubble import Costs, Duration, StageCosts, simulate
from unbubble.families import generate
from unbubble.plan import Plan
from unbubble.runtime.doubling import Steps, sweep_run
from unbubble.runtime.measured import Measured
from unbubble.sweep.variant import variant

MS = 10**6


def costs(forward=1.0, backward=2.0, overhead=0.0, behind=1.0):
    """Times in ms; the second stage takes `behind` times as long."""
    stages = tuple(
        StageCosts(
            forward=Duration(round(forward * by * MS), 0, round(overhead * MS)),
            backward=Duration(round(backward * by * MS), 0, round(overhead * MS)),
            held_until_weight_bytes=2**20,
        )
        for by in (1, behind)
    )
    return Costs(stages=stages, unit="s", ticks_per_unit=10**9)


def apart(by):
    """The same work, one stage longer and the other shorter by that part."""
    return costs(1 - by, 2 - 2 * by, behind=(1 + by) / (1 - by))


class Runner:
    """Takes every step as long as costs of its m say; remembers what ran together.

    `slower[n][m]`: by how much, in launch n.
    """

    def __init__(self, costs_of=lambda m: costs(), slower=()):
        self.costs_of = costs_of
        self.slower = dict(enumerate(slower))
        self.launches = []

    def __call__(self, setups, target, *, steps, on_progress, **options):
        number = len(self.launches)
        self.launches.append([setup.schedule.microbatches for setup in setups])
        on_progress("step 1")
        found = []
        for setup in setups:
            order = setup.schedule
            by = self.slower.get(number, {}).get(order.microbatches, 1)
            taken = replace(self.costs_of(order.microbatches), speed={0: by, 1: by})
            step = replace(simulate(order, taken), measured=True)
            found.append(
                Measured(
                    steps=(step,) * steps, optimizer_s=(0.0,) * steps, losses=(), gradients=None
                )
            )
        return found


def plans(most=64, name="1f1b"):
    one = Plan(schedule=generate(name, 2, 4), costs=costs(), layers_per_stage=(4, 4), model="m:f")
    found = variant(one)
    return [found.with_microbatches(m) for m in (2, 4, 8, 16, 32, 64, 128) if m <= most]


def swept(runner, most=64, **options):
    return list(sweep_run(plans(most), Steps(target="m:f", run=runner, steps=3), **options))
