"""unbubble trace: where a real step went, and what to change."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from unbubble import quantity
from unbubble.classes import HEADS, why_below_zero
from unbubble.cli import options as shared
from unbubble.cli.output import print_json, print_table, say
from unbubble.errors import InputError, RunError
from unbubble.quantity import percent, shown_time

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
LEAST_SHOWN = 0.0005
"""Less of the step is shown as 0.0 %."""
LEAST_OFF = 0.05
"""What a stage takes within so much of its planned time is as planned."""
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
        _print(answer)
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
    writers = {"write_costs": _costs, "write_plan": _plan, "save": _save}
    pictures = {key: options[key] for key in ("svg", "chrome", "html") if options[key]}
    wanted = {key: options[key] for key in writers if options[key]}
    if not wanted and not pictures:
        return
    place, pipeline = next(
        (i, p) for i, p in enumerate(trace.pipelines) if list(p.ranks) == answer["pipeline_ranks"]
    )
    timeline = pipeline.timeline
    if timeline is None:
        option = shared.flag(next(iter({**wanted, **pictures})))
        raise InputError(
            f"{option}: the trace holds no complete pipeline; " + "; ".join(answer["unknown"])
        )
    for key, path in wanted.items():
        writers[key](pipeline, timeline, path)
    if pictures:
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
        attributions=[planned.classes, classes] if planned else [classes],
        facts=[("format", answer["format"]), ("verdict", answer["verdict"])],
        warnings=[f"cannot tell: {text}" for text in answer["unknown"]]
        + [f"recovered: {text}" for text in answer["recovered"]],
    )


def _costs(pipeline: "Pipeline", timeline: "Timeline", path: str) -> None:
    from unbubble.costs_file import dump_costs
    from unbubble.trace.costs import observed_costs

    dump_costs(path, observed_costs([timeline]))


def _plan(pipeline: "Pipeline", timeline: "Timeline", path: str) -> None:
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


def _print(answer: Mapping[str, Any]) -> None:
    steps = len(answer["steps"])
    say(
        f"{answer['format']} trace, step {answer['step']}"
        + (f", one of {steps}" if steps > 1 else "")
        + f", {shown_time(answer['step_s'])}"
        + (f", schedule {answer['schedule']}" if answer["schedule"] else "")
    )
    _print_ranks(answer["ranks"])
    if answer["fractions"] is not None:
        _print_pipeline(answer)
    for row in answer["exceeded"]:
        more = "less" if row["limit"].startswith("min") else "more"
        say(f"limit: {row['what']} is {percent(row['value'])}, {more} than {percent(row['bound'])}")
    if answer.get("what_if"):
        _print_what_if(answer["what_if"])
    for word in ("recovered", "unknown"):
        for text in answer[word]:
            say(f"{'recovered' if word == 'recovered' else 'cannot tell'}: {text}")
    for text in answer["ignored"]:
        say(f"ignored: {text}")


def _print_ranks(rows: Sequence[Mapping[str, Any]]) -> None:
    known = [c for c in (*HEADS, "idle") if any(row[f"{c}_s"] is not None for row in rows)]
    if "bubble" in known:
        known.remove("idle")
    repeated = any(row["recompute_s"] for row in rows)
    if repeated:
        known.insert(1, "recompute")
    shown = [
        {"rank": str(row["rank"]), "total": shown_time(row["total_s"])}
        | {HEADS.get(c, c): _share(row[f"{c}_s"], row["total_s"]) for c in known}
        for row in rows
    ]
    click.echo()
    print_table(shown)
    for reason in why_below_zero(shown):
        say(reason)
    if repeated:
        say("recompute, forwards that backwards run again, is a part of compute")


def _print_pipeline(answer: Mapping[str, Any]) -> None:
    say(
        f"\n{answer['verdict']}\n"
        f"slowest stage {answer['slowest_stage']} by its medians, slowest rank "
        f"{answer['slowest_rank']} by its compute; idle {percent(answer['bubble_fraction'])} of "
        f"ranks × makespan; {_clocks(answer)}"
    )
    if answer["against_plan"] is not None:
        _print_comparison(answer["against_plan"])
    click.echo()
    print_table(
        [
            {"stage": str(row["stage"]), "rank": str(row["rank"])}
            | {
                kind: f"{shown_time(row[kind]['median_s'])} "
                f"({shown_time(row[kind]['least_s'])} … {shown_time(row[kind]['most_s'])})"
                if kind in row else "-"
                for kind in _kinds(answer["stages"])
            }
            for row in answer["stages"]
        ]
    )  # fmt: skip
    if worth := [row for row in answer["advice"] if row["share"] >= LEAST_SHOWN]:
        say("\nwhat would win how much of the step:")
        for row in worth[:6]:
            say(f"  {percent(row['share']):>6}  {row['what']}")
    for row in answer["stragglers"][:3]:
        say(
            f"straggler: {row['action']} on rank {row['rank']} took {shown_time(row['took_s'])}, "
            f"usually {shown_time(row['median_s'])}"
        )
    for row in answer["waits"][:3]:
        cause = "nothing (its own time)"
        if row["cause"] is not None:
            way = "the transfer of " if row["by_transfer"] else ""
            cause = f"{way}{row['cause']} on rank {row['cause_rank']}"
        say(
            f"wait: rank {row['rank']} before {row['action']}, {shown_time(row['length_s'])}, for "
            f"{cause}"
        )


def _clocks(answer: Mapping[str, Any]) -> str:
    """How well the clocks agree, and the classes that this touches."""
    uncertainty, classes = answer["clock_uncertainty_s"], answer["class_uncertainty_s"]
    if uncertainty is None:
        return "clocks agree to an unknown time"
    share = max(classes.values()) / answer["step_s"] if answer["step_s"] else 0.0
    text = f"clocks agree to {shown_time(uncertainty)}"
    if share < LEAST_SHOWN:
        return text
    touched = " and ".join(HEADS[name[:-2]] for name, time in classes.items() if time)
    return f"{text}, so {touched} to {percent(share)} of the step"


def _print_comparison(found: Mapping[str, Any]) -> None:
    """How the step differs from what the plan said of it."""
    if differences := found["order_differences"]:
        first, more = differences[0], len(differences) - 1
        ran = first["ran"] or "nothing more"
        say(
            f"another order than planned: rank {first['rank']} ran {ran} where the plan has "
            f"{first['planned'] or 'nothing more'}"
            + (f"; {more} more rank{'s' * (more > 1)} differ{'s' * (more == 1)}" if more else "")
        )
    if "predicted_s" not in found:
        return
    error = "" if found["error"] is None else f" ({percent(found['error'], sign=True)})"
    say(f"predicted {shown_time(found['predicted_s'])}{error}")
    off = [row for row in found["stages"] if abs(row["ratio"] - 1) >= LEAST_OFF]
    if off:
        off.sort(key=lambda row: -abs(row["measured_s"] - row["planned_s"]))
        shown = [f"stage {r['stage']} {r['kind']} {r['ratio']:.3g}" for r in off[:4]]
        say("median / planned time: " + ", ".join(shown) + " …" * (len(off) > 4))


def _kinds(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    return [k for k in ("F", "B", "I", "W", "OVERLAP_F_B") if any(k in row for row in stages)]


def _print_what_if(found: Mapping[str, Any]) -> None:
    say(
        f"\nover {len(found['steps'])} steps: slowdown {found['slowdown']:.3f} against a job whose "
        f"operations all take their usual time ({shown_time(found['smooth_s'])})"
    )
    for what in ("stage", "replica", "operation"):
        rows = sorted(found[f"by_{what}"].items(), key=lambda row: -row[1])[:4]
        say(f"  by {what}: " + ", ".join(f"{key} {value:.3f}" for key, value in rows))


def _share(seconds: float | None, total: float) -> str:
    return "-" if seconds is None or not total else percent(seconds / total)
