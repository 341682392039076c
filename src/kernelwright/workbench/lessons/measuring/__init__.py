"""Lesson: measuring and debugging."""
