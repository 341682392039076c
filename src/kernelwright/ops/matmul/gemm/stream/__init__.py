"""The rung that streams the weight of a product with few rows by the copy engine."""
