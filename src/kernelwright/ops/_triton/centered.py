"""The rounding error of a mean, as Triton code."""

import triton
import triton.language as tl


@triton.jit
def rest_of_mean(total, squares, n):
    """(what is missing from a mean, the sum of squares without it), from the sum of the n elements
    that the mean was subtracted from and the sum of their squares. In a row of equal elements the
    rest is all that is left of them. In other rows the sum's own error is as large: 0 if it is
    below 1e-5 standard deviations."""
    rest = total / n
    rest = tl.where(rest * rest * n > 1e-10 * squares, rest, 0.0)
    squares -= rest * rest * n
    return rest, tl.where(squares < 0.0, 0.0, squares)  # NaN remains
