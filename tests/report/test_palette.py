"""Colours that can be told apart and texts that can be read on them."""

from itertools import combinations

import pytest

from unbubble.report.palette import INK, SHADES

# linear RGB as each kind of sight perceives it: Machado, Oliveira and Fernandes 2009, severity 1
SIGHTS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
               (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
               (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
               (0.004733, 0.691367, 0.303900)),
}  # fmt: skip


def linear(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def luminance(color):
    r, g, b = linear(color)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def lab(color, sight):
    source = linear(color)
    r, g, b = (
        min(max(sum(w * c for w, c in zip(row, source, strict=True)), 0), 1)
        for row in SIGHTS[sight]
    )
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("shade", [0, 1])
def test_kinds_differ_for_every_sight(sight, shade):
    seen = [lab(fills[shade], sight) for fills in SHADES.values()]
    for first, second in combinations(seen, 2):
        assert sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) ** 0.5 >= 20


@pytest.mark.parametrize("kind", SHADES)
@pytest.mark.parametrize("chunk", range(4))
def test_numbers_can_be_read(kind, chunk):
    one, other = sorted(map(luminance, (SHADES[kind][chunk], INK[chunk % 2])))
    assert (other + 0.05) / (one + 0.05) >= 4.5
