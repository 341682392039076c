// Channels last: positions of all samples split over blocks, in two launches.
//
// Idea: group_norm's `cuda_channels_split`, for one sample and groups of one channel: sums of
// columns, 16 bytes of channels per thread.
// Traffic: x read twice, y written once, less what L2 keeps.
// Limit: three accesses.
#include "../group_norm/cuda_channels_split.cu"
