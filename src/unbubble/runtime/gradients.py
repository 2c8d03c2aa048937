"""Gradients: how far a pipeline's are from those of one process that runs the whole batch."""

import msgspec

GRADIENT_TOLERANCE = 1e-5


class Gradients(msgspec.Struct, kw_only=True):
    """The largest difference of any parameter's gradient, and how many parameters were compared."""

    largest_difference: float
    parameter: str
    parameters: int

    @property
    def equal(self) -> bool:
        """Whether the difference is rounding; NaN is not."""
        return self.largest_difference <= GRADIENT_TOLERANCE
