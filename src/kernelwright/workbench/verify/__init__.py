"""Verification of rungs: cases, checks, comparison with the reference."""
