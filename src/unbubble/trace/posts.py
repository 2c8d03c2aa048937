"""Posts: which kernels the sends and receives that the host posted became.

A send or a receive launches its kernel itself. In a batch (`batch_isend_irecv`) it launches none:
one kernel carries all of them, launched when the batch ends, which is right behind the last post
and in none. So posts without a kernel, with nothing between them, belong to the next send-receive
kernel that their thread launches; a post for which that does not hold is left over.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from unbubble.trace.names import P2P, transfer_named
from unbubble.trace.rank_trace import Kernel, Op, RankTrace, Window, starting_in
from unbubble.trace.repeats import any_within

DIRECTIONS = ("send", "recv")


class Post(NamedTuple):
    """A send or a receive on a host thread; `peer` is the rank at its other end, None if the trace
    does not say."""

    start: int
    end: int
    direction: str
    peer: int | None = None


class Carried(NamedTuple):
    """A kernel and the posts that it carries out."""

    kernel: Kernel
    posts: tuple[Post, ...]

    @property
    def mixed(self) -> bool:
        """Whether it may have waited for several ranks, so that its end is not that of each."""
        peers = {post.peer for post in self.posts}
        return len(self.posts) > 1 and (len(peers) > 1 or None in peers)


def carried(
    trace: RankTrace, window: Window, kernels: Sequence[Kernel]
) -> tuple[list[Carried], int]:
    """What a step's send-receive kernels carry, in the order of the posts; and how many posts are
    left over. Kernels that nothing posted are not among them."""
    moving = [kernel for kernel in kernels if kernel.kind == P2P]
    times = [kernel.launched for kernel in moving]

    def within(post: Post) -> list[Kernel]:
        return moving[bisect_left(times, post.start) : bisect_left(times, post.end)]

    posts = [*_posts(trace, window)]
    own = {kernel for post in posts for kernel in within(post)}
    found = [Carried(kernel, (post,)) for post in posts for kernel in within(post)]
    loose, left = [kernel for kernel in moving if kernel not in own], 0
    for thread in trace.ops:
        pending: list[Post] = []
        for one in _turns(trace, thread, window, loose):
            if isinstance(one, Post) and not within(one):
                pending.append(one)
                continue
            if isinstance(one, Kernel) and pending:
                found.append(Carried(one, tuple(pending)))
            else:  # the thread went on to something else
                left += len(pending)
            pending = []
        left += len(pending)
    return sorted(found, key=lambda one: one.posts[0].start), left


def _posts(trace: RankTrace, window: Window) -> Iterator[Post]:
    """Those of operations, else of ranges."""
    ops = [op for ops in trace.ops.values() for op in starting_in(ops, window)]
    if posted := [op for op in ops if op.transfer in DIRECTIONS]:
        yield from (Post(op.start, op.end, op.transfer) for op in posted)
        return
    for mark in starting_in(trace.marks, window):
        if direction := transfer_named(mark.name):
            yield Post(mark.start, mark.end, direction)


def _turns(
    trace: RankTrace, thread: Any, window: Window, loose: Sequence[Kernel]
) -> Iterator[Post | Kernel | None]:
    """What a thread did, by time: posts, launches of those kernels, and None for anything else."""
    launches, peers = trace.launch_times.get(thread, ()), trace.peers.get(thread, [])
    rows: list[Op | Kernel] = [*starting_in(trace.ops[thread], window)]
    rows += (k for k in loose if any_within(launches, k.launched, k.launched + 1))
    for one in sorted(rows, key=_at):
        if isinstance(one, Kernel):
            yield one
        elif one.transfer in DIRECTIONS:
            i = bisect_left(peers, (one.start, -1))
            told = i < len(peers) and peers[i][0] < one.end
            yield Post(one.start, one.end, one.transfer, peers[i][1] if told else None)
        elif one.transfer != "inner":
            yield None


def _at(one: Op | Kernel) -> int:
    return one.launched if isinstance(one, Kernel) else one.start
