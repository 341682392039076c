// Sorts positions by the elements to which they are added: the sort of embedding's gradient.
#include "../../embedding/lookup/cuda_order.cu"
