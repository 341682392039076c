"""Activations, gated units and arithmetic, one element at a time."""
