"""Judging kernels that are not part of this package."""
