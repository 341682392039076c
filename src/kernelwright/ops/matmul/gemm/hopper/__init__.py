"""The rungs for Hopper's tensor cores."""
