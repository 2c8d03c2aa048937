"""Charts of a report, as HTML fragments: the five classes of every rank, and curves over time."""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from unbubble.action import Kind
from unbubble.attribution import Attribution, RankClasses
from unbubble.report import palette
from unbubble.report.language import both, clean
from unbubble.report.rows import kinds, shown_ranks
from unbubble.report.scale import Scale, shown
from unbubble.simulate import Timeline

MAX_BARS = 32
MAX_CURVES = 32

CLASSES = (
    ("compute", "compute", "计算", "light"),
    ("bubble", "pipeline bubble", "流水线气泡", "dark"),
    ("imbalance_static", "imbalance, static", "负载不均（固定）", "light"),
    ("imbalance_jitter", "imbalance, jitter", "负载不均（抖动）", "dark"),
    ("communication", "exposed communication", "未隐藏的通信", "light"),
    ("overhead", "runtime overhead", "运行时开销", "dark"),
)
"""Field of `RankClasses`, its name in both languages, and the text colour that is legible on it."""


_KINDS = {
    Kind.F: ("forward", "前向"),
    Kind.B: ("backward", "反向"),
    Kind.I: ("backward_input", "反向：输入梯度"),
    Kind.W: ("backward_weight", "反向：权重梯度"),
}


class Curve(NamedTuple):
    """A value over a rank's step: from `ticks[i]` on it is `values[i]`; `limit` is drawn as well.

    `dashed` is a second curve of the same rank (the measured beside the predicted one).
    """

    rank: int
    ticks: Sequence[int]
    values: Sequence[float]
    limit: float | None = None
    dashed: "Curve | None" = None


def class_bars(attributions: Sequence[tuple[str, str, Attribution]]) -> str:
    """One bar a rank and attribution (English and Chinese name each); negative parts go left."""
    first = attributions[0][2]
    rows = []
    low = min(_sum(r, -1) / a.ticks_per_unit for _, _, a in attributions for r in a.ranks)
    high = max(_sum(r, 1) / a.ticks_per_unit for _, _, a in attributions for r in a.ranks)
    whole = high - low or Fraction(1)
    for rank in shown_ranks(len(first.ranks), MAX_BARS):
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
                f'<span class="{last.strip()}">{share:.1%}</span>'
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
        text = f"{share:.0%}" if width >= 5 else ""
        sign = " negative" if value < 0 else ""
        parts.append(
            f'<i class="k-{field} {tone}{sign}" title="{clean(f"{en} · {zh}: {share:.2%}")}" '
            f'style="left:{float(at / whole) * 100:.3f}%;width:{width:.3f}%">{text}</i>'
        )
    zero = f'<b class="zero" style="left:{float(-low / whole) * 100:.3f}%"></b>' if low else ""
    return "".join(parts) + zero


def kind_key(timelines: Sequence[Timeline]) -> str:
    """The legend of the kinds that occur, with a swatch for each virtual stage of a rank."""
    found = set[Kind]().union(*map(kinds, timelines))
    held = max(len(t.schedule.placement.rank_of) // t.ranks for t in timelines)
    if Kind.OVERLAP_F_B in found:
        found |= {Kind.F, Kind.B}
    items = []
    for kind, (en, zh) in _KINDS.items():
        if kind in found:
            swatches = (
                f'<i style="background:{palette.fill(kind, c)}"></i>' for c in range(min(held, 4))
            )
            items.append(f"<li>{''.join(swatches)}{both(en, zh)}</li>")
    items.append(f'<li><i class="k-idle"></i>{both("idle", "空闲")}</li>')
    if held > 1:
        items.append(
            f"<li>{both('shades: virtual stages of a rank', '深浅：rank 上的虚拟阶段')}</li>"
        )
    if Kind.OVERLAP_F_B in found:
        items.append(f"<li>{both('two halves: an overlapped pair', '上下两半：重叠的前反向')}</li>")
    return f'<ul class="key">{"".join(items)}</ul>'


def class_key() -> str:
    """The legend of the classes."""
    items = (f'<li><i class="k-{c}"></i>{both(en, zh)}</li>' for c, en, zh, _ in CLASSES)
    return f'<ul class="key">{"".join(items)}</ul>'


def class_table(attribution: Attribution, scale: Scale) -> str:
    """Every class of every rank in time and in percent of the step."""
    head = "".join(f"<th>{both(en, zh)}</th>" for _, en, zh, _ in CLASSES)
    body = []
    for row in attribution.ranks:
        cells = "".join(_time_and_share(getattr(row, c[0]), row.total, scale) for c in CLASSES)
        body.append(
            f"<tr><th>rank {row.rank}</th>{cells}<td>{scale.text(row.total)}</td>"
            f"<td>{scale.text(row.recompute)}</td><td>{scale.text(row.optimizer)}</td></tr>"
        )
    return (
        f'<div class="wide"><table><thead><tr><th></th>{head}<th>{both("sum", "合计")}</th>'
        f"<th>{both('of it recompute', '其中重计算')}</th>"
        f"<th>{both('of it optimizer', '其中优化器')}</th></tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _time_and_share(value: Fraction, total: Fraction, scale: Scale) -> str:
    share = float(value / total) if total else 0.0
    return f"<td>{scale.text(value)}<br><small>{share:.1%}</small></td>"


def curves(rows: Sequence[Curve], length: int, unit: str) -> str:
    """Small step curves, one a rank, all on the same axes; `length` in ticks."""
    picked = [rows[i] for i in shown_ranks(len(rows), MAX_CURVES)]
    both_curves = [c for row in rows for c in (row, row.dashed) if c is not None]
    top = max((max(c.values, default=0) for c in both_curves), default=0) or 1
    top = max([top, *(c.limit for c in rows if c.limit)])
    return f'<div class="curves">{"".join(_curve(c, length, top, unit) for c in picked)}</div>'


def _curve(curve: Curve, length: int, top: float, unit: str) -> str:
    line = _path(curve, length, top)
    parts = [f'<path class="area" d="{line}V100H0Z"/>', f'<path d="{line}"/>']
    peak = amount(max(curve.values, default=0), unit)
    if curve.dashed is not None:
        parts.append(f'<path class="second" d="{_path(curve.dashed, length, top)}"/>')
        peak += f" · {amount(max(curve.dashed.values, default=0), unit)}"
    if curve.limit:
        y = 100 - 100 * curve.limit / top
        parts.append(f'<path class="limit" d="M0 {y:.2f}H1000"/>')
    return (
        f'<figure><svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" '
        f'aria-label="rank {curve.rank}: {peak}">{"".join(parts)}</svg>'
        f"<figcaption>rank {curve.rank}: {both(f'peak {peak}', f'峰值 {peak}')}"
        "</figcaption></figure>"
    )


def _path(curve: Curve, length: int, top: float) -> str:
    """A step path over 1000 × 100; changes within a thousandth of the width show their highest."""
    columns: dict[int, tuple[float, float]] = {}
    for tick, value in zip(curve.ticks, curve.values, strict=True):
        x = round(1000 * tick / max(length, 1))
        columns[x] = (max(columns.get(x, (0.0, 0.0))[0], value), value)
    steps = []
    for x, (highest, last) in columns.items():
        steps.append(f"H{x}V{100 - 100 * highest / top:.4g}")
        if last != highest:
            steps.append(f"V{100 - 100 * last / top:.4g}")
    return f"M0 100{''.join(steps)}H1000"


def amount(value: float, unit: str) -> str:
    """A value with its unit; bytes in binary units."""
    if unit != "bytes":
        return f"{shown(value)} {unit}".rstrip()
    for name in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{shown(value)} {name}"
        value /= 1024
    return f"{shown(value)} TiB"
