"""A self-contained HTML report: timelines, classes, memory, numbers, gradients, warnings.

One file with everything in it: it loads nothing, so it opens from a disk, an archive or a mail.
Text is English and Chinese; the canvas viewer (`viewer.js`) needs JavaScript, everything else
does not, and on paper a drawn timeline (`svg`) takes its place.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from unbubble import __version__
from unbubble.attribution import Attribution, attribute
from unbubble.costs import Costs
from unbubble.report.charts import (
    MAX_BARS,
    MAX_CURVES,
    class_bars,
    class_key,
    class_table,
    curves,
    kind_key,
)
from unbubble.report.figures import Shown, headline, names, numbers
from unbubble.report.language import both, clean, sentence, translated
from unbubble.report.rows import part_of_run
from unbubble.report.scale import percent, scale_for
from unbubble.report.svg import svg
from unbubble.report.viewer import viewer_data
from unbubble.runtime.gradients import GRADIENT_TOLERANCE, Gradients
from unbubble.simulate import Timeline
from unbubble.simulate.memory import activations, memory


def html(
    timeline: Timeline,
    measured: Timeline | None = None,
    *,
    title: str = "",
    facts: Sequence[tuple[str, str]] = (),
    attributions: Sequence[Attribution] | None = None,
    costs: Costs | None = None,
    memory_limit_bytes: int | None = None,
    gradients: Mapping[str, Gradients] | None = None,
    warnings: Sequence[str] = (),
) -> str:
    """The report of a timeline, or of a prediction (`timeline`) above its measurement.

    `facts` are (name, value) pairs about the plan; names and titles that are in
    `unbubble.report.language` are shown in Chinese too, others as they are. `attributions`, one a
    timeline, are made here unless given. `costs` say how transfers share channels and how many
    bytes a stage holds; without those, memory is counted in microbatches. `gradients` are the
    comparisons with one process by the schedule's name. Raises InputError where two timelines
    differ in unit.
    """
    pictured = [timeline] if measured is None else [timeline, measured]
    longest = max(t.in_unit(t.makespan) for t in pictured)
    attributions = attributions or [attribute(t, costs) for t in pictured]
    page = [
        Shown(t, *called, scale_for(t, longest), attribution)
        for t, called, attribution in zip(pictured, names(pictured), attributions, strict=True)
    ]
    sections = [
        _warnings(warnings),
        headline(page),
        _timelines(page),
        _classes(page),
        _gains(page[-1]),
        _memory(page, costs, memory_limit_bytes),
        _gradients(gradients or {}),
        _section("Numbers", "数值", numbers(page)),
        _facts(facts),
    ]
    schedule = timeline.schedule.name or "custom"
    data = viewer_data(
        [(_heading(s, s.en, ", "), _heading(s, s.zh, "，"), s.timeline) for s in page]
    )
    return _page(title or schedule, _subtitle(timeline), "\n".join(filter(None, sections)), data)


def _heading(shown: Shown, name: str, comma: str) -> str:
    """A timeline's name with its schedule's, which it may be already."""
    schedule = shown.timeline.schedule.name or "custom"
    return name if name.startswith(schedule) else f"{schedule}{comma}{name}"


def _subtitle(timeline: Timeline) -> str:
    schedule = timeline.schedule
    ranks, stages, count = schedule.ranks, schedule.num_stages, schedule.microbatches
    copies, (shown, shown_zh) = schedule.placement.copies, part_of_run(timeline)
    return both(
        f"{schedule.name or 'custom'}: {ranks} ranks, {stages} stages"
        + (f" in {copies} copies" if copies > 1 else "")
        + f", {count} microbatches"
        + (f"; {shown}" if shown else ""),
        f"{schedule.name or 'custom'}：{ranks} 个 rank，{stages} 个阶段"
        + (f"（{copies} 份）" if copies > 1 else "")
        + f"，{count} 个微批次"
        + (f"；{shown_zh}" if shown else ""),
    )


def _section(en: str, zh: str, *parts: str) -> str:
    return f"<section><h2>{both(en, zh)}</h2>\n{''.join(parts)}</section>"


def _note(en: str, zh: str) -> str:
    return f'<p class="note">{both(en, zh)}</p>'


def _left_out(page: Sequence[Shown], most: int) -> tuple[str, str]:
    """That not all ranks have a bar or a curve, in both languages."""
    ranks = max(s.timeline.ranks for s in page)
    if ranks <= most:
        return "", ""
    return (
        f" {most} of the {ranks} ranks, evenly spread.",
        f"图中为 {ranks} 个 rank 中均匀选取的 {most} 个。",
    )


def _warnings(warnings: Sequence[str]) -> str:
    items = "".join(f"<li>{sentence(w)}</li>" for w in warnings)
    return f'<ul class="warnings" role="note">{items}</ul>' if items else ""


def _timelines(page: Sequence[Shown]) -> str:
    drawn = svg(*(s.timeline for s in page))
    return _section(
        "Timeline",
        "时间线",
        kind_key([s.timeline for s in page]),
        '<div id="viewer"></div>',
        f'<div class="still">{drawn}</div>',
    )


def _classes(page: Sequence[Shown]) -> str:
    tables = "".join(
        f"<details><summary>{both(f'Numbers, {s.en}', f'数值：{s.zh}')}</summary>"
        f"{class_table(s.attribution, s.scale)}</details>"
        for s in page
    )
    some, some_zh = _left_out(page, MAX_BARS)
    return _section(
        "Where each rank's time went",
        "每个 rank 的时间去向",
        _note(
            "Five classes that add up to the step on every rank; right of the bar: the share of "
            "compute. A part below zero, left of the line, is a rank that waits less than it "
            "would in the ideal pipeline, most often the slowest one." + some,
            "五类时间在每个 rank 上恰好加成整个步骤；条右侧是计算所占比例。"
            "零线左侧的负值表示该 rank 的等待少于理想流水线中的等待，通常是最慢的 rank。" + some_zh,
        ),
        class_key(),
        class_bars([(s.en, s.zh, s.attribution) for s in page]),
        tables,
    )


_GAINS = (
    ("imbalance_static", "equal ranks", "各 rank 负载相同"),
    ("imbalance_jitter", "no jitter", "没有抖动"),
    ("communication", "free communication", "通信不花时间"),
    ("overhead", "no runtime overhead", "没有运行时开销"),
)


def _gains(last: Shown) -> str:
    """What removing one cause would win, the largest first."""
    total = last.attribution.ladder.measured
    rows = sorted(
        ((getattr(last.attribution.gains, field), en, zh) for field, en, zh in _GAINS),
        key=lambda row: -row[0],
    )
    body = "".join(
        f'<tr><th class="words">{both(en, zh)}</th><td>{last.scale.text(gain)}</td>'
        f"<td>{percent(gain / total if total else 0)}</td></tr>"
        for gain, en, zh in rows
        if gain
    )
    if not body:
        return ""
    head = f"<th></th><th>{both('saves', '可节省')}</th><th>{both('of the step', '占步骤')}</th>"
    return _section(
        "What removing one cause would win",
        "消除某个原因能赢得多少",
        f'<div class="wide"><table class="narrow"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>",
    )


def _memory(page: Sequence[Shown], costs: Costs | None, limit_bytes: int | None) -> str:
    in_bytes = costs is not None and any(
        row.held_until_input_bytes or row.held_until_weight_bytes for row in costs.stages
    )
    if in_bytes:
        assert costs is not None
        drawn = curves(
            [(s.timeline, memory(s.timeline, costs)) for s in page], "bytes", limit_bytes
        )
        words = ("Weights and activations in bytes, as the costs give them",
                 "权重与激活（字节），按代价文件计算")  # fmt: skip
    else:
        drawn = curves([(s.timeline, activations(s.timeline, costs)) for s in page], "")
        words = ("Activations, in microbatches of a whole rank",
                 "激活，以整个 rank 的微批次数计")  # fmt: skip
    some, some_zh = _left_out(page, MAX_CURVES)
    dashed = ("", "")
    if len(page) == 2:
        dashed = (f"; dashed: {page[1].en}", f"；虚线：{page[1].zh}")
    return _section(
        "Memory over the step",
        "步骤中的显存",
        _note(
            f"{words[0]}{dashed[0]}. All ranks on the same axes.{some}",
            f"{words[1]}{dashed[1]}。所有 rank 使用相同的坐标。{some_zh}",
        ),
        drawn,
    )


def _gradients(gradients: Mapping[str, Gradients]) -> str:
    rows = []
    for name, g in gradients.items():
        verdict = (
            f'<td class="good">{both("equal", "一致")}</td>'
            if g.equal
            else f'<td class="bad">{both("different", "不一致")}</td>'
        )
        rows.append(
            f"<tr><th>{clean(name)}</th>{verdict}<td>{g.shown}</td>"
            f"<td>{GRADIENT_TOLERANCE:.0e}</td><td>{g.parameters}</td></tr>"
        )
    if not rows:
        return ""
    head = (
        f'<th class="words">{both("schedule", "调度")}</th><th></th>'
        f"<th>{both('largest difference', '最大差异')}</th><th>{both('tolerance', '容许')}</th>"
        f"<th>{both('parameters', '参数个数')}</th>"
    )
    return _section(
        "Gradients against a single process",
        "与单进程梯度的比较",
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>",
    )


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><th class="words">{translated(name)}</th>'
        f'<td class="words">{sentence(value)}</td></tr>'
        for name, value in facts
    )
    if not rows:
        return ""
    return _section(
        "About this step",
        "关于这个步骤",
        f'<div class="wide"><table><tbody>{rows}</tbody></table></div>',
    )


def _page(title: str, subtitle: str, body: str, data: dict[str, Any]) -> str:
    # "</script>" inside a string would end the script: "<" is written as an escape
    content = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    content = content.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="unbubble {__version__}">
<link rel="icon" href="data:,">
<title>{clean(title)} · unbubble</title>
<style>
{_asset("page.css")}</style>
</head>
<body>
<header>
<div class="top"><div><h1>{translated(title)}</h1><p class="lead">{subtitle}</p></div>
<div class="choices" hidden><button type="button" id="language" lang="zh">中文</button>
<button type="button" id="theme" aria-label="Light or dark · 浅色或深色">◐</button></div></div>
</header>
<main>
{body}
</main>
<footer><p>{
        both(
            f"Made by unbubble {__version__}. A prediction and a measurement are drawn by the same "
            "code from the same kind of data.",
            f"由 unbubble {__version__} 生成。预测与实测是同一种数据，由同一段代码绘制。",
        )
    }</p></footer>
<script type="application/json" id="data">{content}</script>
<script type="module">
{_asset("viewer.js")}
{_asset("page.js")}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return files("unbubble.report").joinpath(name).read_text(encoding="utf-8")
