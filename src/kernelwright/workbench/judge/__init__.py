"""Judging a kernel that is not ours."""
