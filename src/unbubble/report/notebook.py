"""How a Timeline and a Schedule show themselves in a notebook: as the picture of `svg`."""

from unbubble.costs import Costs
from unbubble.errors import UnbubbleError
from unbubble.report.language import clean
from unbubble.report.svg import svg
from unbubble.schedule import Schedule
from unbubble.simulate import Timeline, simulate


def timeline_html(timeline: Timeline) -> str:
    """A timeline's picture."""
    return svg(timeline)


def schedule_html(schedule: Schedule) -> str:
    """A schedule's picture when F, I and W take equal times; one that cannot run shows why."""
    try:
        return svg(simulate(schedule, Costs.uniform(schedule.placement)))
    except UnbubbleError as error:
        return f"<pre>{clean(repr(schedule))}\n{clean(error)}</pre>"
