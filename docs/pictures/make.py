"""The pictures of README and docs, made by unbubble itself.

python docs/pictures/make.py        writes the SVG files beside this one
"""

from pathlib import Path

from unbubble.costs import Costs
from unbubble.families import generate
from unbubble.files import write_text
from unbubble.report.svg import svg
from unbubble.simulate import Timeline, simulate


def timeline(name: str, ranks: int, microbatches: int) -> Timeline:
    """One step in which F, I and W take a unit each on every rank, and transfers nothing."""
    schedule = generate(name, ranks, microbatches)
    return simulate(schedule, Costs.uniform(schedule.placement))


def pictures() -> dict[str, str]:
    """Every picture by its file name."""
    return {"1f1b-and-zb-v.svg": svg(timeline("1f1b", 4, 8), timeline("zb-v", 4, 8))}


if __name__ == "__main__":
    for name, picture in pictures().items():
        write_text(Path(__file__).parent / name, picture)
