"""Lesson: arithmetic intensity and the roofline."""
