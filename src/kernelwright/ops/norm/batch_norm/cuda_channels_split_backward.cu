// Backward, channels last: positions of all samples split over blocks, in two launches.
//
// Idea: group_norm's. The sums of a channel are the gradients of its bias and weight, and give gx.
// Traffic: gy and x read twice, gx written once, less what L2 keeps.
// Limit: five accesses.
#include "../group_norm/cuda_channels_split_backward.cu"
