"""Exercises: files to fill in, and their checks."""
