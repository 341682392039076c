"""The cost model of matrix products on Hopper's tensor cores, beside cuBLAS: timing and
fitting. README.md has the results."""
