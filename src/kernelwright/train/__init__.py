"""Training of the models: data, the training loop, checkpoints, several processes."""
