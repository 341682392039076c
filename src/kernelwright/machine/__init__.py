"""What the hardware is: device facts, what its driver says, the only clock."""

from .facts import facts, gpu_facts, gpu_of, here, last_level_cache, slug

__all__ = ["facts", "gpu_facts", "gpu_of", "here", "last_level_cache", "slug"]
