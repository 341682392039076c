"""A Numba kernel; imported after the simulator has been activated."""

from numba import cuda


def reverse(x, y, n, a):
    i = cuda.grid(1)
    if i < n:
        y[n - 1 - i] = x[i] * a
