"""A calculator for layouts, the functions from coordinates to offsets that kernels use."""
