"""Lesson: occupancy and latency."""
