"""Figures: the numbers of a step as a page shows them, each with its definition."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

from unbubble.attribution import Attribution
from unbubble.report.language import both, clean
from unbubble.report.rows import part_of_run
from unbubble.report.scale import Scale, percent, shown
from unbubble.simulate import Timeline


class Shown(NamedTuple):
    """A timeline of the page, its name in both languages and how its times are written."""

    timeline: Timeline
    en: str
    zh: str
    scale: Scale
    attribution: Attribution


def names(pictured: Sequence[Timeline]) -> list[tuple[str, str]]:
    """What to call each timeline, in both languages; never two alike."""
    known = {True: ("measured", "实测"), False: ("simulated", "模拟")}
    if len(pictured) == 1:
        return [known[pictured[0].measured]]
    first, second = pictured
    if second.measured and not first.measured:
        return [("predicted", "预测"), known[True]]
    names = [t.schedule.name or "custom" for t in pictured]
    if names[0] == names[1]:
        return [(f"{name} ({i})", f"{name}（{i}）") for i, name in enumerate(names, 1)]
    return [(name, name) for name in names]


def headline(page: Sequence[Shown]) -> str:
    """The figures that one looks for first; of two timelines those of the second, and how far
    the first is from it."""
    last = page[-1]
    timeline, text = last.timeline, last.scale.text
    whole = timeline.length
    tail = whole != timeline.makespan
    en, zh = part_of_run(timeline)
    cards = [
        (
            both(en.capitalize(), zh) if en else both("Step", "步骤时间"),
            text(timeline.makespan),
            both(
                f"{last.en} makespan" + (f"; {text(whole)} with its tail" if tail else ""),
                f"{last.zh}总时长" + (f"；含收尾 {text(whole)}" if tail else ""),
            ),
        )
    ]
    if len(page) == 2:
        first = page[0]
        change = _change(*(s.timeline.in_unit(s.timeline.makespan) for s in page))
        cards.append(
            (
                both(first.en.capitalize(), first.zh),
                first.scale.text(first.timeline.makespan),
                both(
                    f"{change} against {last.en}{_drawn(last)[0]}",
                    f"与{last.zh}{_drawn(last)[1]}相差 {change}",
                ),
            )
        )
    busiest = max(range(timeline.ranks), key=lambda rank: timeline.work[rank])
    busy = text(timeline.work[busiest])
    cards += [
        (
            both("Bubble", "气泡"),
            percent(timeline.bubble_fraction),
            both("idle / (ranks × makespan)", "空闲 /（rank 数 × 总时长）"),
        ),
        (
            both("Busiest rank", "最忙的 rank"),
            f"rank {busiest}",
            both(f"work {busy}", f"计算量 {busy}"),
        ),
    ]
    boxes = "".join(
        f"<div><dt>{name}</dt><dd>{clean(value)}<small>{words}</small></dd></div>"
        for name, value, words in cards
    )
    return f'<dl class="figures">{boxes}</dl>'


def _drawn(shown: Shown) -> tuple[str, str]:
    """A measurement has many steps, and the page draws one of them."""
    return (", the step drawn below", "（下方所绘的一步）") if shown.timeline.measured else ("", "")


Figure = tuple[str, str, str, str, Callable[[Timeline], int | Fraction], bool]
"""Name and definition in both languages, the figure, and whether it is a time."""

TAIL = "step with its tail"

_FIGURES: tuple[Figure, ...] = (
    (
        "makespan", "总时长 (makespan)",
        "last end − first start over all ranks", "所有 rank 中最后结束 − 最先开始",
        lambda t: t.makespan, True,
    ),
    (
        "span", "跨度 (span)",
        "the longest (last end − first start) of any single rank",
        "单个 rank 的（最后结束 − 最先开始）的最大值",
        lambda t: t.span, True,
    ),
    (
        TAIL, "含收尾的步骤",
        "from the first action to the end of the optimizer", "从第一个动作到优化器结束",
        lambda t: t.length, True,
    ),
    (
        "work", "计算量",
        "forward, backward and their halves, all ranks together", "所有 rank 的前向与反向之和",
        lambda t: sum(t.work), True,
    ),
    (
        "idle", "空闲",
        "ranks × makespan − work", "rank 数 × 总时长 − 计算量",
        lambda t: sum(t.idle), True,
    ),
    (
        "bubble fraction", "气泡占比",
        "idle / (ranks × makespan)", "空闲 /（rank 数 × 总时长）",
        lambda t: t.bubble_fraction, False,
    ),
    (
        "bubble fraction by span", "按跨度的气泡占比",
        "1 − (work of the busiest rank) / span", "1 − 最忙 rank 的计算量 / 跨度",
        lambda t: t.bubble_fraction_span, False,
    ),
    (
        "bubble overhead", "气泡开销比",
        "idle / work", "空闲 / 计算量",
        lambda t: t.bubble_overhead, False,
    ),
    (
        "utilization", "利用率",
        "1 − bubble fraction", "1 − 气泡占比",
        lambda t: t.utilization, False,
    ),
)  # fmt: skip


def numbers(page: Sequence[Shown]) -> str:
    """The table of all figures; of two timelines also how far the first is from the second."""
    rows = []
    tail = any(s.timeline.length != s.timeline.makespan for s in page)
    for en, zh, meaning, meaning_zh, figure, is_time in _FIGURES:
        if en == TAIL and not tail:
            continue
        values = [figure(s.timeline) for s in page]
        cells = "".join(
            f"<td>{s.scale.text(v) if is_time else percent(v, 2)}</td>"
            for s, v in zip(page, values, strict=True)
        )
        if len(page) == 2:
            ahead, actual = (
                s.timeline.in_unit(v) if is_time else float(v)
                for s, v in zip(page, values, strict=True)
            )
            points = percent(ahead - actual, 2, sign=True).rstrip("%")
            points = both(f"{points} points", f"{points} 个百分点")
            cells += (
                f"<td>{_change(ahead, actual)}</td>"
                if is_time
                else f'<td class="points">{points}</td>'
            )
        words = f"<small>{both(meaning, meaning_zh)}</small>"
        rows.append(f"<tr><th>{both(en, zh)}{words}</th>{cells}</tr>")
    head = "<th></th>" + "".join(f"<th>{both(s.en, s.zh)}</th>" for s in page)
    if len(page) == 2:
        head += f"<th>{both('difference', '差')}</th>"
    return (
        f'<div class="wide"><table class="narrow"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _change(value: float, base: float) -> str:
    return percent(value / base - 1, sign=True) if base else shown(value)
