// Channels last: the positions of all samples split over blocks, in two launches.
//
// Idea: `cuda_channels_split` of group_norm, applied to one sample with one channel per group:
// column sums, with 16 bytes of channels per thread.
// Traffic: x read twice, y written once; the second read comes in part from L2.
// Compared with `cuda_split`: the same for channels last.
// Limit: three accesses per element.
#include "../group_norm/cuda_channels_split.cu"
