// Backward, channels last: a slab of channels in the shared memory of a cluster's blocks.
//
// Idea: group_norm's. The sums of a channel are the gradients of its bias and weight, and give gx.
// Traffic: gy, x read, gx written once.
// Limit: 3.5 MiB of a slab of both tensors.
#include "../group_norm/cuda_channels_backward.cu"
