"""Attention, and the operators of its key and value cache."""
