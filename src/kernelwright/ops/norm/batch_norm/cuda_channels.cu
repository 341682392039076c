// Channels last: a slab of channels of all samples in the shared memory of a cluster's blocks.
//
// Idea: group_norm's `cuda_channels`, for one sample and groups of one channel.
// Traffic: x read, y written once.
// Limit: 3.5 MiB of a slab, whose rows are at least 32 bytes.
#include "../group_norm/cuda_channels.cu"
