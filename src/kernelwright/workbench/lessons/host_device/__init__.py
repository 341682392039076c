"""Lesson: host and device."""
