"""Teaching steps: rungs that are never dispatched."""
