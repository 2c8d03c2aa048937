"""Gradients: how far a pipeline's are from those of one process that runs the whole batch."""

from math import nan

import msgspec

GRADIENT_TOLERANCE = 1e-5


class Gradients(msgspec.Struct, kw_only=True):
    """The largest difference of any parameter's gradient, and how many parameters were compared.

    None is a difference that is no number. Where it is the model and not the schedule: `apart` is
    what the model made otherwise on some rank; `of_model`: one process differs as well, as soon as
    it takes the batch in microbatches; `summed`: by just their number, so the loss is a sum.
    """

    largest_difference: float | None
    parameter: str
    parameters: int
    apart: list[str] = []
    of_model: bool = False
    summed: bool = False

    @property
    def equal(self) -> bool:
        """Whether the difference is rounding; NaN is not."""
        return within_rounding(self.largest_difference)

    @property
    def shown(self) -> str:
        """The difference for people."""
        return f"{nan if self.largest_difference is None else self.largest_difference:.2g}"

    @property
    def blame(self) -> str:
        """What is wrong where they are not equal."""
        if self.apart:
            return (
                f"the model's {' and '.join(self.apart)} are not the same on every rank: its "
                "function must make the same in every process (it may have a seed of its own, or "
                "draw the data anew at every call)"
            )
        if not self.of_model:
            return "the schedule does not train the same model"
        if self.summed:
            return (
                "the whole batch's are larger by the number of microbatches, in one process too, "
                "so the loss is a sum over the samples; divide it by their number"
            )
        return (
            "one process alone differs as much once it takes the batch in microbatches, so it is "
            "the model (dropout, batch normalisation, a loss that is no mean, or one over other "
            "numbers of tokens in every microbatch, overflows, the rounding of 16-bit numbers)"
        )


def within_rounding(difference: float | None) -> bool:
    """Whether gradients that differ so much are equal."""
    return difference is not None and difference <= GRADIENT_TOLERANCE
