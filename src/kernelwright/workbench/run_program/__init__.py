"""`kernelwright run`: a user's own CUDA program, in the emulator or on a GPU."""
