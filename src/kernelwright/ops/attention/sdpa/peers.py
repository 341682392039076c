"""Attention in other libraries, for timing."""

from __future__ import annotations

PEERS = ()
