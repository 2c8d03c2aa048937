"""Charts of a report, as HTML fragments: the five classes of every rank, and curves over time."""

from collections.abc import Sequence
from fractions import Fraction

from unbubble.action import TRANSFER, Kind
from unbubble.attribution import Attribution, RankClasses
from unbubble.quantity import shown_size
from unbubble.report import palette
from unbubble.report.language import both
from unbubble.report.rows import has_tail, kinds, shown_ranks, virtual_stages
from unbubble.report.scale import Scale, percent, shown
from unbubble.simulate import Timeline
from unbubble.simulate.memory import Curve

MAX_BARS = 32
MAX_CURVES = 32

CLASSES = (
    ("compute", "compute", "计算", "dark"),
    ("bubble", "pipeline bubble", "流水线气泡", "dark"),
    ("imbalance_static", "imbalance, static", "不均衡（固定）", "light"),
    ("imbalance_jitter", "imbalance, jitter", "不均衡（抖动）", "dark"),
    ("communication", "exposed communication", "暴露通信", "light"),
    ("overhead", "runtime overhead", "运行时开销", "dark"),
)
"""Field of `RankClasses`, its name in both languages, and the text colour that is legible on it."""


_KINDS = {
    Kind.F: ("forward", "前向"),
    Kind.B: ("backward", "反向"),
    Kind.I: ("backward_input", "反向：输入梯度"),
    Kind.W: ("backward_weight", "反向：权重梯度"),
}


def class_bars(attributions: Sequence[tuple[str, str, Attribution]]) -> str:
    """One bar a rank and attribution (English and Chinese name each); negative parts go left."""
    ranks = max(len(a.ranks) for _, _, a in attributions)
    rows = []
    low = min(_sum(r, -1) / a.ticks_per_unit for _, _, a in attributions for r in a.ranks)
    high = max(_sum(r, 1) / a.ticks_per_unit for _, _, a in attributions for r in a.ranks)
    whole = high - low or Fraction(1)
    for rank in shown_ranks(ranks, MAX_BARS):
        for place, (en, zh, attribution) in enumerate(attributions):
            if rank >= len(attribution.ranks):
                continue
            name = f"rank {rank}" if len(attributions) == 1 else f"rank {rank} {{}}"
            label = both(name.format(en), name.format(zh))
            last = " group" if place == len(attributions) - 1 else ""
            row, per = attribution.ranks[rank], attribution.ticks_per_unit
            share = float(row.compute / row.total) if row.total else 0.0
            rows.append(
                f'<span class="name{last}">{label}</span>'
                f'<div class="track{last}">{_bar(row, low * per, whole * per)}</div>'
                f'<span class="{last.strip()}">{percent(share)}</span>'
            )
    return f'<div class="bars">{"".join(rows)}</div>'


def _sum(row: RankClasses, sign: int) -> Fraction:
    """The sum of the classes above (1) or below (−1) zero."""
    values = (getattr(row, field) for field, *_ in CLASSES)
    return sum((v for v in values if v * sign > 0), Fraction(0))


def _bar(row: RankClasses, low: Fraction, whole: Fraction) -> str:
    """The parts of a bar that runs from `low` (at most 0) over `whole` ticks."""
    parts = []
    right, left = -low, -low
    for field, en, zh, tone in CLASSES:
        value: Fraction = getattr(row, field)
        if not value:
            continue
        if value > 0:
            at, right = right, right + value
        else:
            left = at = left + value
        width = float(abs(value) / whole) * 100
        share = float(value / row.total) if row.total else 0.0
        text = percent(share, 0) if width >= 5 else ""
        sign = " negative" if value < 0 else ""
        title = f"{en} · {zh}: {percent(share, 2)}"
        parts.append(
            f'<i class="k-{field} {tone}{sign}" title="{title}" '
            f'style="left:{float(at / whole) * 100:.3f}%;width:{width:.3f}%">{text}</i>'
        )
    zero = f'<b class="zero" style="left:{float(-low / whole) * 100:.3f}%"></b>' if low else ""
    return "".join(parts) + zero


def kind_key(timelines: Sequence[Timeline]) -> str:
    """The legend of the kinds that occur, with a swatch for each virtual stage of a rank."""
    found = set[Kind]().union(*map(kinds, timelines))
    held = virtual_stages(timelines)
    items = []
    for kind, (en, zh) in _KINDS.items():
        if kind in found:
            fills = [palette.fill(kind, chunk) for chunk in range(min(held, 4))]
            items.append((fills, en, zh))
    if has_tail(found):
        items.append(
            ([palette.OTHER], "tail: reduction, clipping, optimizer", "收尾：归约、裁剪、优化器")
        )
    if found & TRANSFER:
        items.append(([palette.OTHER], "posting of transfers", "发起传输"))
    items.append((["var(--idle)"], "idle", "空闲"))
    if held > 1:
        items.append(([], "shades: virtual stages of a rank", "深浅：rank 上的虚拟阶段"))
    if Kind.OVERLAP_F_B in found:
        items.append(([], "two halves: an overlapped pair", "上下两半：重叠对"))
    return _key(items)


def class_key() -> str:
    """The legend of the classes."""
    return _key([([f"var(--{field})"], en, zh) for field, en, zh, _ in CLASSES])


def _key(items: Sequence[tuple[list[str], str, str]]) -> str:
    """A legend: the colours of each entry and its words."""
    entries = []
    for fills, en, zh in items:
        swatches = "".join(f'<i style="background:{fill}"></i>' for fill in fills)
        entries.append(f"<li>{swatches}{both(en, zh)}</li>")
    return f'<ul class="key">{"".join(entries)}</ul>'


def class_table(attribution: Attribution, scale: Scale) -> str:
    """Every class of every rank in time and in percent of the step."""
    head = "".join(f"<th>{both(en, zh)}</th>" for _, en, zh, _ in CLASSES)
    body = []
    for row in attribution.ranks:
        cells = "".join(_time_and_share(getattr(row, c[0]), row.total, scale) for c in CLASSES)
        body.append(
            f'<tr><th class="rank">rank {row.rank}</th>{cells}<td>{scale.text(row.total)}</td>'
            f"<td>{'–' if row.recompute is None else scale.text(row.recompute)}</td>"
            f"<td>{scale.text(row.optimizer)}</td></tr>"
        )
    return (
        f'<div class="wide"><table><thead><tr><th></th>{head}<th>{both("sum", "合计")}</th>'
        f"<th>{both('of it recompute', '其中重计算')}</th>"
        f"<th>{both('of it optimizer', '其中优化器')}</th></tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _time_and_share(value: Fraction, total: Fraction, scale: Scale) -> str:
    share = float(value / total) if total else 0.0
    return f"<td>{scale.text(value)}<br><small>{percent(share)}</small></td>"


def curves(
    timelines: Sequence[tuple[Timeline, Sequence[Curve]]], unit: str, limit: float | None = None
) -> str:
    """Small step curves, one picture a rank, all on the same axes; a second timeline is dashed."""
    length = max(t.in_unit(t.length) for t, _ in timelines) or 1.0
    top = float(max(curve.peak for _, row in timelines for curve in row)) or 1.0
    top = max(top, limit or 0.0)
    ranks = max(timeline.ranks for timeline, _ in timelines)
    figures = []
    for rank in shown_ranks(ranks, MAX_CURVES):
        parts, peaks = [], []
        for number, (timeline, row) in enumerate(timelines):
            if rank >= len(row):
                continue
            line = _path(row[rank], timeline, length, top)
            if number == 0:
                parts.append(f'<path class="area" d="{line}V100H0Z"/><path d="{line}"/>')
            else:
                parts.append(f'<path class="second" d="{line}"/>')
            peaks.append(amount(float(row[rank].peak), unit))
        if limit:
            parts.append(f'<path class="limit" d="M0 {100 - 100 * limit / top:.2f}H1000"/>')
        peak = " · ".join(dict.fromkeys(peaks))
        figures.append(
            f'<figure><svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" '
            f'aria-label="rank {rank}: {peak}">{"".join(parts)}</svg>'
            f"<figcaption>rank {rank}: {both(f'peak {peak}', f'峰值 {peak}')}</figcaption></figure>"
        )
    return f'<div class="curves">{"".join(figures)}</div>'


def _path(curve: Curve, timeline: Timeline, length: float, top: float) -> str:
    """A step path over 1000 × 100; changes within a thousandth of the width show their highest."""
    columns: dict[int, tuple[float, float]] = {}
    for tick, value in zip(curve.ticks, curve.values, strict=True):
        x = round(1000 * timeline.in_unit(tick - timeline.begin) / length)
        held = 100 * value / curve.scale / top
        columns[x] = (max(columns.get(x, (0.0, 0.0))[0], held), held)
    steps = [f"M0 {100 - 100 * curve.base / curve.scale / top:.4g}"]
    for x, (highest, last) in columns.items():
        steps.append(f"H{x}V{100 - highest:.4g}")
        if last != highest:
            steps.append(f"V{100 - last:.4g}")
    return f"{''.join(steps)}H1000"


def amount(value: float, unit: str) -> str:
    """A value with its unit; bytes in binary units."""
    return shown_size(value) if unit == "bytes" else f"{shown(value)} {unit}".rstrip()
