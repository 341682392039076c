"""Elements in order."""
