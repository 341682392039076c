"""Race, bounds and initialization checks of kernels."""
