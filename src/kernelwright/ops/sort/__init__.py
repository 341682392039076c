"""Elements in their order."""
