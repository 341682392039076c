"""Text generation with the models."""
