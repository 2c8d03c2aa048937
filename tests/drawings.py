"""Read the timetables drawn in docstrings, so that a test compares them with a simulation.

    grids(doc)            every drawing in a docstring: its lines, comments and indentation removed
    cells(draw(timeline)) the same form of a Timeline's exact drawing

A drawing is a run of lines `rank N  cells`; four spaces after the cells begin a comment.
"""

import re

_ROW = re.compile(r"\s*rank\s+(\d+)\s+(\S.*?)(?:\s{4,}.*)?\s*")


def grids(docstring: str) -> list[list[list[str]]]:
    """Every drawing of a docstring as rows of cells; `2+a` stays one text of an overlapped pair."""
    found: list[list[list[str]]] = []
    expected = 0
    for line in docstring.splitlines():
        match = _ROW.fullmatch(line)
        if match is None:
            expected = 0
            continue
        assert int(match[1]) == expected, f"rank {expected} should be drawn next: {line!r}"
        if expected == 0:
            found.append([])
        found[-1].append(match[2].split())
        expected += 1
    return found


def cells(lines: list[str]) -> list[list[str]]:
    """The cells of an exact drawing (`unbubble.report.text.draw`)."""
    (grid,) = grids("\n".join(lines))
    return grid
