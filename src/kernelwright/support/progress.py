"""A message on standard error if a compilation takes long."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager

PATIENCE = 2.0  # seconds


@contextmanager
def waiting(what: str):
    """Print `what` once if the block takes longer than PATIENCE seconds."""
    timer = threading.Timer(
        PATIENCE, lambda: print(f"kernelwright: {what} (once, then cached)", file=sys.stderr)
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
