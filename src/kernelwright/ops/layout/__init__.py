"""Operators that only copy elements to other positions."""
