from hypothesis import given
from hypothesis import strategies as st

from unbubble.runtime.tokens import byte_pairs, corpus, encode, text


def decode(tokens, ranks):
    pair_of = {token: pair for pair, token in ranks.items()}

    def data(token):
        return bytes([token]) if token < 256 else b"".join(map(data, pair_of[token]))

    return b"".join(map(data, tokens))


def test_the_most_frequent_pair_is_joined_first():
    ranks = byte_pairs(b"abab abab ab", 2)
    assert ranks[(ord("a"), ord("b"))] == 256
    assert list(encode(b"abab", ranks)) == [257] or list(encode(b"abab", ranks)) == [256, 256]


def test_pairs_do_not_cross_words():
    ranks = byte_pairs(b"x y x y x y", 10)
    assert all(first != ord("x") for first, _ in ranks)


@given(st.binary(max_size=200))
def test_decoding_gives_the_bytes_back(data):
    ranks = byte_pairs(b"the cat and the hat and the bat " * 3, 20)
    assert decode(encode(data, ranks), ranks) == data


def test_the_corpus_is_the_text():
    ranks = byte_pairs(text(), 768)
    assert decode(corpus(), ranks) == text()
    assert len(ranks) == 768
    assert max(corpus()) < 1024
    assert len(corpus()) < len(text()) / 3
