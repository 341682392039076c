"""Training of the models: data, the loop, checkpoints, several processes."""
