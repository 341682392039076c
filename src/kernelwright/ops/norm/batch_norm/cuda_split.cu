// Channels first: a channel split over blocks that do not wait for each other, in two launches.
//
// Idea: `cuda_split` of group_norm; the rows of a set are one channel of each sample. The last
// block of a channel merges the sums of the others, and also writes the variance for the running
// variance.
// Traffic: x read twice, y written once; the second read comes in part from L2.
// Compared with `cuda_two_passes`: 16 bytes per access instead of one element, and many blocks per
// channel.
// Limit: three accesses per element; rows of an odd length are read element by element.
#include "../group_norm/cuda_split.cu"
