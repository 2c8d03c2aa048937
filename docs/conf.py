"""Sphinx: MyST pages in the furo theme. Build: sphinx-build docs docs/_build."""

project = "unbubble"
author = "the unbubble authors"
extensions = ["myst_parser"]
html_theme = "furo"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
