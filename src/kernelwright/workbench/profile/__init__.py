"""Where the time and the memory of a step go: kernels, operators, Python stacks."""
