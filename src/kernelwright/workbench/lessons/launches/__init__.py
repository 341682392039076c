"""Lesson: launches, streams, events, graphs."""
