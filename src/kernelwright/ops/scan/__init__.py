"""Running totals along a dimension."""
