"""Reductions along one or more dimensions."""
