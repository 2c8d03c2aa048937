"""The five classes of a step's time."""
