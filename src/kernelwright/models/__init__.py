"""Models made of the operators; each file reads from top to bottom."""
