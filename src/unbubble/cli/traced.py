"""What a trace told, for people."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from unbubble.classes import HEADS, why_below_zero
from unbubble.cli.output import print_table, say
from unbubble.quantity import percent, shown_time

LEAST_SHOWN = 0.0005
"""Less of the step is shown as 0.0 %."""
LEAST_OFF = 0.05
"""What a stage takes within so much of its planned time is as planned."""


def print_trace(answer: Mapping[str, Any]) -> None:
    """The answer of `unbubble.trace.findings` with its limits and what-ifs."""
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
    for key, word in {
        "recovered": "recovered",
        "unknown": "cannot tell",
        "ignored": "ignored",
    }.items():
        for text in answer[key]:
            say(f"{word}: {text}")


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
        cause = "no other rank (its own time)"
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
