"""Optimizer steps over lists of parameters."""
