"""Attention, and what serves it."""
