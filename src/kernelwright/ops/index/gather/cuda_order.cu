// Positions sorted by the elements that they add to: the sort of embedding's gradient.
#include "../../embedding/lookup/cuda_order.cu"
