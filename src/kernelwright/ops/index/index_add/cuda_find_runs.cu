// Finds and orders the positions of each row: the kernels of embedding's gradient.
#include "../../embedding/lookup/cuda_runs.cu"
