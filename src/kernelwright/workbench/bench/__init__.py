"""Timing rungs and peers; the limits that times are compared with; tuning."""
