"""Operators on images: resampling, pooling, boxes."""
