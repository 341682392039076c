"""Dissecting and debugging kernels."""
