"""Operators of images: resampling, pooling, boxes."""
