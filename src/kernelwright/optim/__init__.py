"""Optimizers made of operators, which replace those of torch.optim."""

from .adamw import AdamW

__all__ = ["AdamW"]
