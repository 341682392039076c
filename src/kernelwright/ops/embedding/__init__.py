"""Table look-ups and rotary positions."""
