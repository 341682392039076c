// Backward, channels first: a channel split over blocks that do not wait for each other.
//
// Idea: as in group_norm. The sums over a channel are the gradients of its bias and weight, and gx
// is computed from them.
// Traffic: gy and x read twice, gx written once; the second read comes in part from L2.
// Compared with `native`: two launches, with many blocks per channel.
// Limit: five accesses per element; rows of an odd length are read element by element.
#include "../group_norm/cuda_split_backward.cu"
