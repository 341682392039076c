"""Whether a rung is right: cases, checks, wrong kernels."""
