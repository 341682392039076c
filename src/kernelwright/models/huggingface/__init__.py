"""Maps names of sizes and weights in Hugging Face checkpoints to those of our models."""

from __future__ import annotations
