"""Rows and elements by their numbers."""
