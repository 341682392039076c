"""What the hardware is: device facts, the roof table, the only clock."""

from .facts import gpu_of

__all__ = ["gpu_of"]
