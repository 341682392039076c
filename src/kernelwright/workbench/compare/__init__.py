"""Two versions of an operator, side by side."""
