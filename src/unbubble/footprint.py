"""Footprint: the closed forms of what training holds in memory, each with what it assumes.

Weights, gradients and the optimizer's state go by parameters, activations by layer and microbatch;
how many microbatches a rank holds is `formulas.peak_in_flight`, or exactly `simulate.memory`. All
in bytes of one device.

b samples of a microbatch, s their length, h hidden size, a attention heads, t tensor-parallel size.
"""

from fractions import Fraction

from unbubble.errors import InputError

KORTHIKANTI = "Reducing Activation Recomputation in Large Transformer Models, arXiv 2205.05198"
RECOMPUTE = ("none", "selective", "full")


def state_bytes(
    parameters: int | Fraction,
    *,
    weights: int = 2,
    gradients: int = 4,
    optimizer: int = 12,
    shards: int = 1,
) -> Fraction:
    """Weights, gradients and optimizer state of so many parameters, given their bytes each.

    The defaults are Megatron-LM's for bf16: 2 + 4 (main gradients in fp32) + 12 (master weights and
    Adam's two moments in fp32) = 18. `shards` replicas share the optimizer's state (ZeRO-1, the
    distributed optimizer): 6 + 12/dp.
    """
    _positive(parameters=parameters, shards=shards)
    return Fraction(parameters) * (weights + gradients + Fraction(optimizer, shards))


def activation_bytes(
    *,
    samples: int,
    length: int,
    hidden: int,
    heads: int,
    tensor: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
) -> Fraction:
    """What one transformer layer keeps of one microbatch for its backward, in 16 bit.

        recompute    tensor parallel          and sequence parallel
        none         sbh(10 + 24/t + 5as/(ht))   sbh(34/t + 5as/(ht))
        selective    sbh(10 + 24/t)              sbh 34/t
        full         2sbh                        2sbh/t

    As in the paper, the MLP is 4h wide without a gate, every head has keys and values, dropout is
    on. Without either (t = 1) that is sbh(34 + 5as/h) = 34sbh + 5as²b. The 10 are the layer norms,
    the dropouts and their inputs, which tensor parallelism alone does not shard. Selective
    recompute drops what the attention's core keeps, 5as²b; so does an attention that never stores
    it, as FlashAttention. Full recompute keeps the layer's input, sharded as the norms are. Source:
    KORTHIKANTI, table 2 (the last cell is Megatron-LM's: the input is sharded there).
    """
    _positive(samples=samples, length=length, hidden=hidden, heads=heads, tensor=tensor)
    if recompute not in RECOMPUTE:
        raise InputError(f"recompute is {recompute!r}; it is one of {', '.join(RECOMPUTE)}")
    whole, t = samples * length * hidden, Fraction(1, tensor)
    unsharded = t if sequence_parallel else Fraction(1)
    if recompute == "full":
        return 2 * whole * unsharded
    core = 5 * Fraction(heads * length, hidden) * t if recompute == "none" else 0
    return whole * (10 * unsharded + 24 * t + core)


def uniform_recompute_bytes(layers: int, group: int, kept: int, whole: int) -> int:
    """What a stage holds at most of one microbatch where layers recompute in groups: the input of
    every group, `kept`, and everything of the group that is being run again, `whole` a layer.

    ⌈L/g⌉ · kept + g · whole, so it is not monotone in g: least near g = √(L · kept / whole).
    """
    _positive(layers=layers, group=group)
    return -(-layers // group) * kept + min(group, layers) * whole


def _positive(**values: int | Fraction) -> None:
    for name, value in values.items():
        if value < 1:
            raise InputError(f"{name} is {value}; it is at least 1")
