"""Layout: which of a job's ranks make up each pipeline.

Written as the parallel sizes, fastest first (`tp2,dp2,pp4`: neighbours share a tensor-parallel
group, pipeline stages are the furthest apart), or as four numbers tp,cp,pp,dp, which lie as
Megatron lays them: tp, cp, dp, pp.
"""

import re
from collections.abc import Sequence
from math import prod

from unbubble.errors import InputError

_SIZE = re.compile(r"([a-z]{2,3})=?([0-9]{1,7})")


def parse_layout(text: str) -> list[tuple[str, int]]:
    """Names and sizes, fastest first."""
    words = [word.strip() for word in text.split(",")]
    if all(word.isascii() and word.isdigit() for word in words):
        if len(words) != 4:
            raise InputError(
                f"--layout {text}: give four sizes, tp,cp,pp,dp, or names as in tp2,pp4"
            )
        tp, cp, pp, dp = map(int, words)
        sizes = [("tp", tp), ("cp", cp), ("dp", dp), ("pp", pp)]
    else:
        matches = [_SIZE.fullmatch(word) for word in words]
        if not all(matches):
            raise InputError(f"--layout {text}: write sizes fastest first, as in tp2,dp2,pp4")
        sizes = [(match[1], int(match[2])) for match in matches if match]
    names = [name for name, _ in sizes]
    if names.count("pp") != 1 or len(set(names)) != len(names):
        raise InputError(f"--layout {text}: every name once, and pp among them")
    if any(size < 1 for _, size in sizes):
        raise InputError(f"--layout {text}: sizes are at least 1")
    return sizes


def pipelines(sizes: Sequence[tuple[str, int]]) -> list[list[int]]:
    """The job's ranks of every pipeline, in the order of the pipeline's ranks."""
    names = [name for name, _ in sizes]
    at = names.index("pp")
    stride = prod(size for _, size in sizes[:at])
    length = sizes[at][1]
    world = prod(size for _, size in sizes)
    if world > 1 << 20:
        raise InputError(f"--layout: {world} ranks are beyond what a job has")
    first = [r for r in range(world) if r // stride % length == 0]
    return [[r + i * stride for i in range(length)] for r in first]
