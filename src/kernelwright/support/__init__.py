"""What every layer may use, and nothing that knows of operators or GPUs."""
