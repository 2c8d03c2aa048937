"""Reports: text, SVG, Chrome trace and HTML from a Timeline."""
