"""The closed forms, each with its denominator, its assumptions and its source."""
