"""Attention and the operators of its cache."""
