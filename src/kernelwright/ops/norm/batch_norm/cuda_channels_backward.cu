// Backward, channels last: a slab of channels in the shared memory of a cluster.
//
// Idea: as in group_norm. The sums over a channel are the gradients of its bias and weight, and gx
// is computed from them.
// Traffic: gy and x read once, gx written once.
// Compared with `cuda_channels_split`: one read of each operand instead of two.
// Limit: a slab of 3.5 MiB of both tensors together.
#include "../group_norm/cuda_channels_backward.cu"
