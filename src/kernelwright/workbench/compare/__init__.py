"""Comparison of two versions of an operator."""
