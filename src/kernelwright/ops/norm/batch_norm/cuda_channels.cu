// Channels last: a slab of channels of all samples in the shared memory of a cluster.
//
// Idea: `cuda_channels` of group_norm, applied to one sample with one channel per group.
// Traffic: x read once, y written once.
// Compared with `cuda_channels_split`: one read instead of two.
// Limit: a slab of 3.5 MiB, whose rows have at least 32 bytes.
#include "../group_norm/cuda_channels.cu"
