"""Inspecting, dissecting and debugging kernels."""
