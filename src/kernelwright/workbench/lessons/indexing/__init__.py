"""Lesson: grid, block, warp, thread."""
