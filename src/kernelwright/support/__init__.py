"""Utilities that every layer may use; independent of operators and GPUs."""
