"""Table lookups and rotary positions."""
