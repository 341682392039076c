"""The rungs for products with up to 64 rows."""
