// Backward, channels first: a channel split over blocks that do not wait for each other.
//
// Idea: group_norm's. The sums of a channel are the gradients of its bias and weight, and give gx.
// Traffic: gy and x read twice, gx written once, less what L2 keeps.
// Limit: five accesses; rows of an odd length are read element by element.
#include "../group_norm/cuda_split_backward.cu"
