"""Lesson: PTX and SASS."""
