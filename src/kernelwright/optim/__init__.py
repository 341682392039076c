"""Optimizers made of operators; they stand where torch.optim's stood."""

from .adamw import AdamW

__all__ = ["AdamW"]
