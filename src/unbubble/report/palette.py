"""Palette: one colour a kind, told apart with every common colour blindness, and its shades.

Blue forward, orange backward, mauve input gradient, green weight gradient; between any two of them
the difference (CIE 1976) is at least 20 for normal, protan, deutan and tritan sight. The virtual
stages of a rank are shades, light and dark in turn, whose text has a contrast of at least 4.5:1.
"""

from unbubble.action import Kind

INK = ("#15181d", "#ffffff")
"""Text on the shades of even and of odd virtual stages."""

SHADES: dict[Kind, tuple[str, str, str, str]] = {
    Kind.F: ("#6f9fe3", "#1c45a8", "#b7cff1", "#112965"),
    Kind.B: ("#f2994a", "#b84a06", "#f8cca4", "#6e2c04"),
    Kind.I: ("#b27fa3", "#a1508f", "#d8bfd1", "#613056"),
    Kind.W: ("#86e3ae", "#0f7d57", "#c2f1d6", "#094b34"),
}
"""Fill by virtual stage; the fifth is like the first again."""
OTHER = "#555a63"
"""Everything that is no F, B, I or W: the tail of a step, transfers."""

WORDS = {
    Kind.F: "forward",
    Kind.B: "backward",
    Kind.I: "backward_input",
    Kind.W: "backward_weight",
    Kind.OVERLAP_F_B: "overlapped pair",
}
"""What a legend calls a kind."""


def fill(kind: Kind, chunk: int) -> str:
    """The colour of a plain action of a rank's `chunk`-th virtual stage."""
    return SHADES[kind][chunk % 4] if kind in SHADES else OTHER
