"""Lesson: shared memory."""
