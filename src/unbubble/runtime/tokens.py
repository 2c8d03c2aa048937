"""Real text as tokens: a small byte-pair vocabulary made from the text itself.

The text that ships with the package is the Declaration of Independence and the Constitution of the
United States with its amendments, both in the public domain.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from itertools import pairwise

_WORD = re.compile(rb" ?[A-Za-z]+| ?[0-9]+|\s+|.", re.DOTALL)

Pair = tuple[int, int]


@cache
def text() -> bytes:
    """The text that ships with the package."""
    return files(__package__).joinpath("constitution.txt").read_bytes()


@cache
def corpus(merges: int = 768) -> tuple[int, ...]:
    """The shipped text as tokens of 0 … 255 + merges."""
    return tuple(encode(text(), byte_pairs(text(), merges)))


def byte_pairs(data: bytes, merges: int) -> dict[Pair, int]:
    """The vocabulary: the most frequent pair of neighbours becomes one token, `merges` times.

    Pairs never cross words, so counting words once is enough. A tie goes to the smaller pair.
    """
    words = [(list(word), count) for word, count in Counter(_WORD.findall(data)).items()]
    pairs: Counter[Pair] = Counter()
    holders: dict[Pair, set[int]] = {}
    for number, (word, count) in enumerate(words):
        for pair in pairwise(word):
            pairs[pair] += count
            holders.setdefault(pair, set()).add(number)
    ranks: dict[Pair, int] = {}
    for token in range(256, 256 + merges):
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        ranks[best] = token
        for number in holders.pop(best):
            word, count = words[number]
            for pair in pairwise(word):
                pairs[pair] -= count
            _join(word, best, token)
            for pair in pairwise(word):
                pairs[pair] += count
                holders.setdefault(pair, set()).add(number)
        pairs = +pairs  # drop what no longer occurs
    return ranks


def encode(data: bytes, ranks: dict[Pair, int]) -> Iterable[int]:
    """Tokens of any bytes: in each word the earliest learned pair is joined first."""
    known: dict[bytes, list[int]] = {}
    for piece in _WORD.findall(data):
        if piece not in known:
            word = list(piece)
            while found := [p for p in pairwise(word) if p in ranks]:
                first = min(found, key=lambda pair: ranks[pair])
                _join(word, first, ranks[first])
            known[piece] = word
        yield from known[piece]


def _join(word: list[int], pair: Pair, token: int) -> None:
    """Replace every occurrence of the pair in place, from the left."""
    i = 0
    while i < len(word) - 1:
        if (word[i], word[i + 1]) == pair:
            word[i : i + 2] = [token]
        i += 1
