"""Lesson: global memory."""
