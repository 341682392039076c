"""Rows and elements selected by index."""
