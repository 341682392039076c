"""Lesson: warps."""
