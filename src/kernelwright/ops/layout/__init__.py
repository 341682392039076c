"""Elements moved to other places: nothing is computed."""
