// Runs: where the positions of each row lie, and their order: the kernels of embedding's gradient.
#include "../../embedding/lookup/cuda_runs.cu"
