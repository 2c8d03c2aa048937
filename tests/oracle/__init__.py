"""Plain, slow, obviously right versions of what the package does fast."""
