"""The hardware: device properties, driver readings, and timing."""

from .facts import facts, gpu_facts, gpu_of, here, last_level_cache, slug, slug_of

__all__ = ["facts", "gpu_facts", "gpu_of", "here", "last_level_cache", "slug", "slug_of"]
