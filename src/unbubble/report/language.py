"""Both languages of a page: English and Chinese side by side, one of them shown by the style."""

import re
from html import escape

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


CHINESE = {
    "unbubble demo: the naive plan": "unbubble demo：朴素计划",
    "unbubble demo: the chosen plan": "unbubble demo：选出的计划",
    "plan": "计划",
    "model": "模型",
    "schedule": "调度",
    "layers per stage": "每个阶段的层数",
    "predicted step": "预测的步骤时间",
    "measured step, median of all": "实测步骤时间，所有步骤的中位数",
    "prediction against that median": "预测与该中位数之差",
    "format": "格式",
    "verdict": "结论",
}
"""Titles and names of facts that commands give to a page."""


SENTENCES = {
    "cannot tell": "无法判断",
    "compute-bound: it is {} of the step": "瓶颈在计算：计算占步骤的 {}",
    "bubble-limited: the pipeline bubble is {} of the step": "瓶颈在气泡：流水线气泡占步骤的 {}",
    "not bubble-limited: imbalance is {} of the step, the pipeline bubble {}":
        "瓶颈不在气泡：不均衡占步骤的 {}，流水线气泡占 {}",
    "not bubble-limited: exposed communication is {} of the step, the pipeline bubble {}":
        "瓶颈不在气泡：暴露通信占步骤的 {}，流水线气泡占 {}",
    "not bubble-limited: overhead of the runtime is {} of the step, the pipeline bubble {}":
        "瓶颈不在气泡：运行时开销占步骤的 {}，流水线气泡占 {}",
    "cannot tell: {}": "无法判断：{}",
    "recovered: {}": "推断得出：{}",
    "recompute: the trace does not say what backwards run again":
        "重计算：trace 没有说明反向中重新运行了什么",
    "recompute: the trace has no operations of autograd that would tell it":
        "重计算：trace 中没有可供判断的 autograd 操作",
    "steps: nothing in the trace divides it into steps, so all of it counts as one":
        "步骤：trace 中没有任何内容划分步骤，因此全部算作一个步骤",
    "clocks: nothing that was sent bounds the clock of some rank":
        "时钟：没有任何传输能约束某个 rank 的时钟",
    "clocks: effects precede their causes by up to {}; times of different ranks are only that "
    "good against each other":
        "时钟：结果比原因早，最多 {}；不同 rank 的时间相互比较只有这样的精度",
    "transfers: this kind of trace records none, so communication cannot be told apart":
        "传输：这类 trace 不记录传输，因此无法区分通信",
    "transfers: nobody waited for the arrival of any, so their times are bounds from above, and "
    "communication may be less": "传输：没有 rank 等待过任何一次到达，其时间只是上界，通信可能更少",
    "transfers: none of the pipeline is in the trace; a wait for one may be counted as compute":
        "传输：trace 中没有流水线的传输；等待传输的时间可能被算作计算",
    "actions: nothing ran for {} s at their ends, and it is not in their compute":
        "动作：在它们的末尾有 {} 秒没有任何内容运行，这段时间不算作它们的计算",
    "actions: for {} s their input was there and nothing ran yet, longer than usual; half of it "
    "counts as waiting, half as the rank's own work":
        "动作：有 {} 秒输入已经到达但还没有开始运行，比平常更久；"
        "一半算作等待，一半算作该 rank 自己的工作",
    "rank {}: {}": "rank {}：{}",
    "ranks: no known schedule has this order; is the trace of a last rank missing?":
        "rank：没有已知的调度是这个顺序；是否缺少最后某个 rank 的 trace？",
    "stages, from the order of the ranks": "阶段，按 rank 的顺序",
    "actions, from autograd's links of forward and backward operations":
        "动作，按 autograd 中前向与反向操作的联系",
    "the step, from calls of the schedule with backwards; evaluations beside it are left out":
        "步骤，由含有反向的调度调用组成；其间的评估不计入",
    "a forward and a backward before the step, as PyTorch finds shapes; they are left out":
        "步骤之前的一次前向和一次反向，PyTorch 用它们推断形状；不计入",
}  # fmt: skip
"""What a measured step's page says most often: verdicts, and what its trace does not tell. {} is a
figure, or one more of the sentences."""

_FORMS = {
    re.compile(re.escape(english).replace(r"\{\}", "(.+?)"), re.DOTALL): chinese
    for english, chinese in SENTENCES.items()
}


def translated(text: str) -> str:
    """One of those in both languages, any other text as it is."""
    return both(text, CHINESE.get(text, text))


def sentence(text: str) -> str:
    """A sentence in both languages, as far as it is known."""
    return both(text, _chinese(text))


def _chinese(text: str) -> str:
    for form, chinese in _FORMS.items():
        if found := form.fullmatch(text):
            return chinese.format(*map(_chinese, found.groups()))
    return text


def both(english: str, chinese: str) -> str:
    """Escaped text in both languages, each marked with its `lang`."""
    if english == chinese:
        return clean(english)
    return f'<span lang="en">{clean(english)}</span><span lang="zh">{clean(chinese)}</span>'


def clean(text: object) -> str:
    """Any text as HTML or XML; what neither can hold is shown as U+FFFD."""
    return escape(_UNPRINTABLE.sub("\ufffd", str(text)))
