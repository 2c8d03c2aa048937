"""DualPipe and DualPipe-V: microbatches meet from both ends; a forward runs beside a backward.

`2+a` is the overlapped pair: a forward and a full backward as one action, which starts when the
inputs of both are there, so that the all-to-alls of one hide under the kernels of the other.

DualPipe keeps two copies of the model: stage s lives on rank s and, as stage p+s, on rank p−1−s;
the first half of the microbatches goes down the first copy, the second half up the second copy.

dualpipe p=4 m=8, F=I=W=1, F&B=3            bubble (p/2−1)(F&B+B−3W) = 2 of 26
rank 0  0 1 2 4 e E 5 3+f+f . 6+a+a g g . 7+b+b h h c C d D
rank 1  . 0 4 1 5 2 e e 6+a+a 3+f+f 7+b+b g g c c . h d H D
rank 2  . 4 0 5 1 6 a a 2+e+e 7+b+b 3+f+f c c g g . d h D H
rank 3  4 5 6 0 a A 1 7+b+b . 2+e+e c c . 3+f+f d d g G h H

DualPipe-V cuts that in the middle and folds it into a V of half the ranks: rank r holds stages r
and 2p−1−r of one copy, and a microbatch goes there and back.

dualpipe-v p=2 m=4 v=2, F=I=W=1, F&B=3            bubble (p−1)(F&B+B−3W) = 2 of 26
rank 0  0 1 2 0 a A 1 3+b+b . 2+a+a c c . 3+b+b d d c C d D
rank 1  . 0 0 1 1 2 a a 2+a+a 3+b+b 3+b+b c c c c . d d D D

Both formulas are exact where W ≤ F = I, B = I + W, F&B = F + B. On both, a rank sees two
streams, the near one (which reaches it first) and the far one, and takes the same eight steps.
"""

from array import array
from collections.abc import Iterable

from unbubble.action import JOINED, KIND_MASK, Kind
from unbubble.costs import Costs
from unbubble.families.family import Family, Option
from unbubble.schedule.order import Schedule
from unbubble.schedule.placement import bidirectional, v_shape
from unbubble.schedule.weave import array_of, in_turn, run, weave


def dualpipe(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """Rank r and rank p−1−r do the same on opposite copies."""
    half = microbatches // 2
    rows = []
    for rank in range(ranks):
        down, up = Stream(rank, 0), Stream(2 * ranks - 1 - rank, half)
        near, far = (down, up) if rank < ranks // 2 else (up, down)
        rows.append(steps(ranks // 2, min(rank, ranks - 1 - rank), half, near, far))
    return Schedule.of_codes(rows, bidirectional(ranks))


def dualpipe_v(
    ranks: int, microbatches: int, virtual: int, *, costs: Costs | None, **options: Option
) -> Schedule:
    """Rank r runs its stage on the way there as near stream, that on the way back as far one."""
    rows = [
        steps(ranks, rank, microbatches, Stream(rank, 0), Stream(2 * ranks - 1 - rank, 0))
        for rank in range(ranks)
    ]
    return Schedule.of_codes(rows, v_shape(ranks))


class Stream:
    """One direction on a rank: `stage` on microbatches `first`, `first` + 1, …"""

    def __init__(self, stage: int, first: int):
        self.stage = stage
        self.forwards = self.backwards = first

    def forward(self, count: int, *, joined: bool = False) -> range:
        """The next `count` forwards; `joined` with the backward that follows each."""
        start = self.forwards
        self.forwards += count
        codes = run(Kind.F, self.stage, start, start + count)
        return range(codes.start | JOINED, codes.stop | JOINED, codes.step) if joined else codes

    def backward(self, count: int, kind: Kind = Kind.B) -> range:
        """The next `count` backwards, full ones or input gradients."""
        start = self.backwards
        self.backwards += count
        return run(kind, self.stage, start, start + count)


def steps(depth: int, place: int, microbatches: int, near: Stream, far: Stream) -> "array[int]":
    """The order of the rank that is `place` ranks from its end, the middle being depth − 1 from it.

    `microbatches` (at least 2·depth) go through each stream; `near` reaches the rank first.
    """
    inner = depth - 1 - place
    steady = microbatches - 2 * depth + place + 1

    # 1, 2: fill with the near stream, then with both
    row = array_of(near.forward(2 * inner))
    row += in_turn(near.forward(place + 1), far.forward(place + 1))

    # 3: the first backwards are split, so that the gradient hurries on
    inputs = far.backward(inner, Kind.I)
    row += in_turn(inputs, as_kind(Kind.W, inputs), far.forward(inner))

    # 4: a forward of each stream beside a backward of the other; the middle's first pair is apart,
    # because its backward would have to wait for the forward
    if inner == 0:
        row += in_turn(near.forward(1), far.backward(1))
        row += in_turn(far.forward(1, joined=True), near.backward(1))
        steady -= 1
    row += in_turn(
        near.forward(steady, joined=True),
        far.backward(steady),
        far.forward(steady, joined=True),
        near.backward(steady),
    )

    # 5: the near stream has no forwards left
    row += in_turn(far.backward(inner), far.forward(inner, joined=True), near.backward(inner))

    # 6, 7, 8: drain; the second half of the backwards is split, the weight gradients fill the end
    last = in_turn(far.backward(place + 1), near.backward(place + 1))
    row += last[: place + 1]
    split = array_of(as_kind(Kind.I, last[place + 1 :]), near.backward(inner, Kind.I))
    row += weave((as_kind(Kind.W, split), place + 1), (split, 0))
    return row


def as_kind(kind: Kind, codes: Iterable[int]) -> "array[int]":
    """The same stages and microbatches, another kind."""
    return array_of(code & ~KIND_MASK | kind for code in codes)


def broken_dualpipe_rule(ranks: int, microbatches: int, virtual: int, **options: Option) -> str:
    if ranks % 2:
        return "DualPipe's rule is that p is even, the two directions meet between two ranks"
    if microbatches % 2:
        return "DualPipe's rule is that m is even, one half for each direction"
    if microbatches < 2 * ranks:
        return f"DualPipe's rule is that m is at least 2p = {2 * ranks}"
    return ""


def broken_dualpipe_v_rule(ranks: int, microbatches: int, virtual: int, **options: Option) -> str:
    if microbatches < 2 * ranks:
        return f"PyTorch's and DualPipe's rule is that m is at least the 2p = {2 * ranks} stages"
    return ""


FAMILIES = (
    Family(
        name="dualpipe",
        summary="both directions at once on two copies of the model, forwards beside backwards",
        source="DeepSeek-V3, arXiv 2412.19437, and its published DualPipe",
        bubble="(p/2−1)(F&B+B−3W) of time where W ≤ F = I",
        memory="p+1 microbatches on every rank, and two copies of the parameters",
        order=dualpipe,
        needs="p even, m even, m ≥ 2p",
        broken_rule=broken_dualpipe_rule,
        placement=lambda ranks, virtual: bidirectional(ranks),
        splits_backward=True,
    ),
    Family(
        name="dualpipe-v",
        aliases=("ScheduleDualPipeV",),
        summary="DualPipe folded into a V: one copy of the model on half the ranks",
        source="torch.distributed.pipelining, after DualPipe, arXiv 2412.19437",
        bubble="(p−1)(F&B+B−3W) of time, each of them one stage's, where W ≤ F = I",
        memory="p + ½ microbatches on the fullest rank",
        order=dualpipe_v,
        needs="m ≥ 2p",
        broken_rule=broken_dualpipe_v_rule,
        virtual=(2,),
        placement=v_shape,
        splits_backward=True,
    ),
)
