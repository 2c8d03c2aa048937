"""A real decoder: embeddings, pre-norm transformer blocks with causal attention, norm and head.

The layers are separate modules so that a pipeline can cut between any two of them.
"""

import torch
from torch import nn
from torch.nn import functional

from unbubble.runtime.tokens import corpus
from unbubble.runtime.workload import Microbatch, Workload


class Embedding(nn.Module):
    """Token plus position: (b, s) integers → (b, s, width)."""

    def __init__(self, vocabulary: int, length: int, width: int):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.token(tokens) + self.position.weight[: tokens.shape[1]]


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): (b, s, width) → (b, s, width)."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        heads = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x))))


class Head(nn.Module):
    """Final norm and logits: (b, s, width) → (b, s, vocabulary)."""

    def __init__(self, width: int, vocabulary: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits(self.norm(x))


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean over all tokens."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def decoder(
    *, blocks: int, width: int, heads: int, vocabulary: int, length: int, samples: int
) -> Workload:
    """The decoder on the shipped text; `samples` sequences of `length` tokens a microbatch."""
    layers = [
        Embedding(vocabulary, length, width),
        *(Block(width, heads) for _ in range(blocks)),
        Head(width, vocabulary),
    ]
    tokens = torch.tensor(corpus())
    starts = len(tokens) - length

    def microbatch(number: int) -> Microbatch:
        # windows spread over the text by a step that shares no factor with most lengths
        at = [(number * samples + i) * 7919 % starts for i in range(samples)]
        window = torch.stack([tokens[a : a + length + 1] for a in at])
        return window[:, :-1].contiguous(), window[:, 1:].contiguous()

    return Workload(layers=layers, loss=cross_entropy, microbatch=microbatch)


def small() -> Workload:
    """The model of `unbubble demo`: 10 blocks and a head over 8,192 tokens (the byte-pair
    vocabulary has 1,024; the table is padded as is usual, so that the head is a real load)."""
    return decoder(blocks=10, width=256, heads=4, vocabulary=8192, length=128, samples=2)


def tiny() -> Workload:
    """A model for tests: milliseconds a step."""
    return decoder(blocks=6, width=32, heads=2, vocabulary=1024, length=16, samples=2)
