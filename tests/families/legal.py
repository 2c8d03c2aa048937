"""Hypothesis strategies: parameters that a family takes, and what they make."""

from hypothesis import assume
from hypothesis import strategies as st

from unbubble.errors import InputError
from unbubble.families import families


@st.composite
def parameters(draw, family, *, max_ranks=8, max_microbatches=20):
    """p, m, v and options that the family takes."""
    even = family.name in ("dualpipe", "chimera")
    ranks = draw(st.integers(1, max_ranks // 2).map(lambda half: 2 * half) if even
                 else st.integers(1, max_ranks))  # fmt: skip
    low = 2 * ranks if family.name.startswith("dualpipe") else 1
    high = 1 if family.name == "naive" else max(low, max_microbatches)
    microbatches = draw(st.integers(low, high))
    several = st.integers(1, 4) if None in family.virtual else st.sampled_from(family.virtual)
    virtual = draw(several)
    options = {}
    if "group" in family.options and microbatches >= ranks and draw(st.booleans()):
        options["group"] = draw(st.integers(ranks, microbatches))
    try:
        family.check(ranks, microbatches, virtual, **options)
    except InputError:
        assume(False)
    return ranks, microbatches, virtual, options


@st.composite
def generated(draw, names=None, **limits):
    """A schedule of any family, with the family."""
    family = families()[draw(st.sampled_from(sorted(names or families())))]
    ranks, microbatches, virtual, options = draw(parameters(family, **limits))
    return family, family.generate(ranks, microbatches, virtual, **options)
