"""Generation of text by the models."""
