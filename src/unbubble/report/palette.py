"""Palette: one colour a kind, told apart with every common colour blindness, and its shades.

Blue forward, orange backward, pink input gradient, green weight gradient (after Okabe and Ito);
virtual stages of a rank are shades of it, light and dark in turn, each with a text colour of at
least 4.5:1 on it.
"""

from unbubble.action import Kind

DARK_TEXT, LIGHT_TEXT = "#15181d", "#ffffff"

SHADES: dict[Kind, tuple[str, str, str, str]] = {
    Kind.F: ("#86bdf0", "#2b68b4", "#b9d9f7", "#1c4678"),
    Kind.B: ("#f2ad5c", "#a8560a", "#f9d3a4", "#713a08"),
    Kind.I: ("#e7a3cc", "#a14488", "#f3cfe4", "#6c2c5b"),
    Kind.W: ("#7fcdae", "#1d7655", "#b9e4d3", "#124c37"),
}
"""Fill by virtual stage; the fifth is like the first again."""
OTHER = "#a9adb5"
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


def text_on(kind: Kind, chunk: int) -> str:
    """The colour of text on it."""
    return LIGHT_TEXT if kind in SHADES and chunk % 2 else DARK_TEXT
