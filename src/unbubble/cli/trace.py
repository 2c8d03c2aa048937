"""unbubble trace: where a real step went, and what to change."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from unbubble import quantity
from unbubble.cli import options as shared
from unbubble.cli.output import print_json
from unbubble.cli.traced import print_trace
from unbubble.errors import InputError, RunError
from unbubble.quantity import percent

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from unbubble.attribution import Attribution
    from unbubble.plan import Plan
    from unbubble.simulate import Timeline
    from unbubble.trace import Trace
    from unbubble.trace.assembly import Pipeline

LIMITS = {
    "max_bubble": ("bubble", "pipeline bubble"),
    "max_imbalance": ("imbalance", "imbalance"),
    "max_communication": ("communication", "exposed communication"),
    "max_overhead": ("overhead", "overhead"),
    "min_compute": ("compute", "compute"),
}
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Writer = Callable[["Timeline", str], None]
OUTPUTS = ("write_costs", "write_plan", "save", "svg", "chrome", "html")


@click.command("trace")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option("--plan", "plan_path", metavar="FILE", help="The plan that ran, to compare with.")
@click.option("--step", type=int, help="The step's number [default: the one of median length].")
@click.option("--layout", metavar="SIZES", help="Parallel sizes, fastest first: tp2,dp2,pp4.")
@click.option("--what-if", is_flag=True, help="What each stage and operation adds to all steps.")
@click.option("--max-bubble", metavar="%", help="Exit with 3 if the bubble is more of the step.")
@click.option("--max-imbalance", metavar="%", help="The same for imbalance.")
@click.option("--max-communication", metavar="%", help="The same for exposed communication.")
@click.option("--max-overhead", metavar="%", help="The same for overhead.")
@click.option("--min-compute", metavar="%", help="Exit with 3 if kernels are at work for less.")
@click.option("--write-costs", metavar="FILE", help="A costs file of the measured step.")
@click.option("--write-plan", metavar="FILE", help="A plan file of the measured order and costs.")
@click.option("--save", metavar="FILE", help="The measured step as a recording.")
@shared.pictures
@click.option("--jobs", type=click.IntRange(1, 1024), default=1, show_default=True,
              help="Processes that read the files.")  # fmt: skip
@shared.json
def command(
    paths: tuple[str, ...],
    plan_path: str | None,
    step: int | None,
    layout: str | None,
    what_if: bool,
    jobs: int,
    as_json: bool,
    **options: Any,
) -> int:
    """Split a measured step into compute, bubble, imbalance, communication and overhead.

    PATH… are files, folders or patterns: PyTorch profiler JSON (plain or gzip, one file a rank),
    Nsight Systems SQLite, MegaScan JSON, ByteDance parquet or CSV, Primus JSON, recordings of
    unbubble, the folder of a job around whose loop `unbubble.record` stands.
    """
    from unbubble.plan import load_plan
    from unbubble.trace import read
    from unbubble.trace.findings import findings

    limits = {key: _limit(options[key], shared.flag(key))
              for key in LIMITS if options[key] is not None}  # fmt: skip
    _expect_apart(paths, plan_path, options)
    plan = load_plan(plan_path) if plan_path else None
    placement = plan.schedule.placement if plan else None
    with _executor(jobs) as executor:
        trace = read(paths, step=step, layout=layout, placement=placement, executor=executor)
    answer = findings(trace, plan)
    if what_if:
        answer["what_if"] = _what_if(trace)
    answer["exceeded"] = _exceeded(answer["fractions"], {k: float(v) for k, v in limits.items()})
    _write(trace, plan, answer, options)
    if as_json:
        print_json(answer)
    else:
        print_trace(answer)
    return 3 if answer["exceeded"] else 0


def _limit(text: str, option: str) -> Fraction:
    """A limit of a class; 5 is hardly meant to be the 500% that no class can be."""
    if (share := quantity.fraction(text, option)) > 1:
        raise InputError(
            f"{option} {text} is {percent(share, 0)} of the step, which nothing exceeds; "
            "write 5% or 0.05"
        )
    return share


def _expect_apart(paths: Sequence[str], plan_path: str | None, options: Mapping[str, Any]) -> None:
    """That no output replaces a trace. What lies beside the traces may be an earlier output; and
    the plan may be written anew."""
    from unbubble.files import expect_apart
    from unbubble.trace.sources import expand, format_of

    outputs = {shared.flag(key): options[key] for key in OUTPUTS if options[key]}
    if not outputs:
        return
    targets = {os.path.realpath(path) for path in outputs.values() if "\0" not in path}
    traces = [
        path
        for path in expand(paths)[0]
        if os.path.realpath(path) in targets and format_of(path)[0] is not None
    ]
    expect_apart(outputs, traces)
    outputs.pop("--write-plan", None)
    expect_apart(outputs, [plan_path])


@contextmanager
def _executor(jobs: int) -> Iterator["Executor | None"]:
    """So many processes that read; None for this one alone."""
    if jobs == 1:
        yield None
        return
    from concurrent.futures import BrokenExecutor, ProcessPoolExecutor

    try:
        with ProcessPoolExecutor(jobs, initializer=_end_at_once) as pool:
            with _interrupts_later():
                pool.submit(int)  # all of them start with the first call
            yield pool
    except BrokenExecutor:
        raise RunError(
            "a process that read the traces was killed; if memory ran out, give fewer --jobs"
        ) from None


def _end_at_once() -> None:
    """Signals end a reading process; as an interrupt, its pool would take them for the outcome of
    a file and wait for it to go on."""
    for ending in ENDINGS:
        signal.signal(ending, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Interrupts come when the block ends: what they raise in Python's own calls around a fork is
    printed and then forgotten."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _what_if(trace: "Trace") -> dict[str, Any] | None:
    from dataclasses import asdict

    found = trace.slowdowns()
    return None if found is None else asdict(found)


def _exceeded(fractions: Mapping[str, float] | None, limits: Mapping[str, float]) -> list[Any]:
    if limits and fractions is None:
        raise InputError(
            "a limit was given and the trace cannot tell its classes; see the answer without it"
        )
    found = []
    for key, limit in limits.items():
        assert fractions is not None
        name, words = LIMITS[key]
        share = sum(value for kind, value in fractions.items() if kind.startswith(name))
        if share < limit if key.startswith("min") else share > limit:
            found.append({"limit": key, "value": share, "bound": limit, "what": words})
    return found


def _write(
    trace: "Trace", plan: "Plan | None", answer: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """The files that were asked for."""
    wanted = {key: options[key] for key in OUTPUTS if options[key]}
    if not wanted:
        return
    place, pipeline = next(
        (i, p) for i, p in enumerate(trace.pipelines) if list(p.ranks) == answer["pipeline_ranks"]
    )
    timeline = pipeline.timeline
    if timeline is None:
        option = shared.flag(next(iter(wanted)))
        raise InputError(
            f"{option}: the trace holds no complete pipeline; " + "; ".join(answer["unknown"])
        )
    writers: dict[str, Writer] = {
        "write_costs": _costs,
        "write_plan": _plan,
        "save": partial(_save, pipeline),
    }
    for key, write in writers.items():
        if key in wanted:
            write(timeline, wanted[key])
    if pictures := {key: path for key, path in wanted.items() if key not in writers}:
        classes = trace.attributions[place]
        assert classes is not None
        _pictures(timeline, classes, plan, answer, pictures)


def _pictures(
    timeline: "Timeline",
    classes: "Attribution",
    plan: "Plan | None",
    answer: Mapping[str, Any],
    files: Mapping[str, str],
) -> None:
    """The measured step, below the one that the plan predicts if it does so in seconds."""
    from dataclasses import replace

    from unbubble.report import write
    from unbubble.trace.comparison import Planned

    named = timeline.schedule.named(answer["schedule"])
    timeline = replace(timeline, schedule=named)
    planned = Planned(plan) if plan is not None and plan.costs.unit == timeline.unit else None
    write(
        planned.step if planned else timeline,
        measured=timeline if planned else None,
        svg=files.get("svg"),
        chrome=files.get("chrome"),
        html=files.get("html"),
        title=f"{answer['schedule']}, step {answer['step']}",
        attributions=[planned.classes(timeline), classes] if planned else [classes],
        facts=[("format", answer["format"]), ("verdict", answer["verdict"])],
        warnings=[f"cannot tell: {text}" for text in answer["unknown"]]
        + [f"recovered: {text}" for text in answer["recovered"]],
    )


def _costs(timeline: "Timeline", path: str) -> None:
    from unbubble.costs_file import dump_costs
    from unbubble.trace.costs import observed_costs

    dump_costs(path, observed_costs([timeline]))


def _plan(timeline: "Timeline", path: str) -> None:
    from unbubble.plan import Plan, dump_plan
    from unbubble.schedule.lowering import compute_only
    from unbubble.trace.advice import recognised
    from unbubble.trace.costs import observed_costs

    order = compute_only(timeline.schedule)
    if name := recognised(order):
        order = order.named(name)
    dump_plan(path, Plan(schedule=order, costs=observed_costs([timeline]), name=name))


def _save(pipeline: "Pipeline", timeline: "Timeline", path: str) -> None:
    from unbubble.trace.recording import dump_recording

    assert pipeline.clocks is not None
    dump_recording(
        path,
        [timeline],
        clock_uncertainty_ns=pipeline.clocks.uncertainty,
        recovered=pipeline.recovered,
        unknown=pipeline.unknown,
    )
