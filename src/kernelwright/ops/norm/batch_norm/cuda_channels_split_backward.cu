// Backward, channels last: the positions of all samples split over blocks, in two launches.
//
// Idea: as in group_norm. The sums over a channel are the gradients of its bias and weight, and gx
// is computed from them.
// Traffic: gy and x read twice, gx written once; the second read comes in part from L2.
// Compared with `cuda_split`: the same for channels last.
// Limit: five accesses per element.
#include "../group_norm/cuda_channels_split_backward.cu"
