"""Profiles the time and memory of a step: kernels, operators, Python stacks."""
